"""One module for each group of commands.

A command parses its options and prints; what it does is in the other packages.
"""
