"""The effects of a plan: objects created, patched and deleted, events emitted.

Nothing here decides what is needed.
"""
