"""The graceful shutdown of the node, and its record on disk.

The containers that remain of a killed node are handled in `leftovers`.
"""
