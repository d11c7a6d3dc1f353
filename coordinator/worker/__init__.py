"""The worker process and its caches.

The changes that a worker makes to a job are in `reconcilers`.
"""
