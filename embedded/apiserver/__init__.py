"""The embedded API server: it answers as kube-apiserver does, for one user on one machine.

The scheduler and the node are its clients and do not belong here.
"""
