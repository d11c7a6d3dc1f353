"""The command `torchq`: options, sessions, and how results are printed.

The commands themselves are in `commands`.
"""
