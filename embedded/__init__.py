"""The embedded cluster: an API server, a scheduler, a node and a Redis for one machine.

Modules here are what its parts share. Other packages meet the cluster over HTTP; only `coordinator.local` starts it.
"""
