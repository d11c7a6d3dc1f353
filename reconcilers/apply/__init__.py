"""The effects of a plan: objects created, patched and deleted, events emitted.

The package does not decide which writes are needed.
"""
