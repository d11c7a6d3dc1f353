"""The coordinator's knowledge of the cluster: watches, views of objects, keys that changed.

The decisions that follow from these are in `routing`.
"""
