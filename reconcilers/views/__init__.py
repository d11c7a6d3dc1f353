"""Objects as a reconcile sees them: pods, nodes, groups and queues as frozen values. Pure.

What follows from them is in `plan`.
"""
