"""Tests of the commands about the history."""
