"""The queue store in Redis: snapshots, commits and their encodings.

The scripts themselves are in `lua/store`.
"""
