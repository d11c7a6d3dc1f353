"""The processes of containers: each runs under a shim that outlives the node.

No module here knows a pod. These packages import nothing, because every shim loads them.
"""
