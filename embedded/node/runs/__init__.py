"""The processes of containers: each runs under a shim that outlives the node.

Nothing here knows a pod. These packages import nothing, as every shim loads them.
"""
