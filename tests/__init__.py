"""The tests, in the tree of the code."""
