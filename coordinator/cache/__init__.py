"""What the coordinator has seen of the cluster: watches, views of objects, keys that changed.

What follows from them is in `routing`.
"""
