"""The history of jobs and what they held: rows, what an object says about them, the store of the rows, and usage.

Nothing here talks to a Kubernetes API server. Modules of this folder are pure, but for the Protocol of the store.
"""
