"""The graceful shutdown of the node, and its record on disk.

What stays of a node that was killed is found in `leftovers`.
"""
