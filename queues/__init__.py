"""The queues of tenants: whose job goes next, the store in Redis, and the work queue.

Nothing here knows Kubernetes. Modules of this folder are the values and Protocols that its packages share.
"""
