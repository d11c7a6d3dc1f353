"""The actions of requests: create, update, delete, list, watch, and the garbage collection that follows.

The rules of a resource are in `kinds`; bytes on the wire are in `wire`.
"""
