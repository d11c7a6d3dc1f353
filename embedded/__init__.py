"""The embedded cluster: an API server, a scheduler, a node and a Redis for one machine.

The modules of this folder are shared by the parts. Other packages use the cluster over HTTP; only `coordinator.local`
starts it.
"""
