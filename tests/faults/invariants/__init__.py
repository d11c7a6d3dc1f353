"""The invariants that must hold at any moment of a run, whatever fails."""
