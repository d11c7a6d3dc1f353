"""What the node has and what containers use of this: CPU, memory, GPUs.

Whether a pod fits is decided in `scheduler`.
"""
