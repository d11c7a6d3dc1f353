"""The resources of the node and the part that containers use: CPU, memory, GPUs.

Whether a pod fits is decided in `scheduler`.
"""
