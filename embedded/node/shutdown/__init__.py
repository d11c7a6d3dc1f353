"""The graceful shutdown of the node, and its record on disk.

The pods that remain of a killed node are found in `leftovers`.
"""
