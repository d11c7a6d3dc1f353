"""Recorders of the history that are killed, doubled, cut off and late, beside one that sees everything."""
