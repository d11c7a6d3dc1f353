"""The worker process and its caches.

What it does to a job is in `reconcilers`.
"""
