"""What a request does: create, update, delete, list, watch, and the garbage collection that follows.

What a resource allows is in `kinds`; bytes on the wire are in `wire`.
"""
