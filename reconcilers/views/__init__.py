"""Objects as a reconcile sees them: pods, nodes, groups and queues as frozen values. Pure.

The decisions that follow from views are in `plan`.
"""
