"""The scheduler: it binds pods and gangs to the node.

Nothing here starts a process.
"""
