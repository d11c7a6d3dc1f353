"""The access rights of each account: permissions, the manifests of roles, the check at start.

Access rules of Redis are in `queues.redis`.
"""
