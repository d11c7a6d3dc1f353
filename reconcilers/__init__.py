"""A reconcile: observe a TorchJob and its pods, plan, apply.

Modules of this folder are the run itself and the values that its packages share.
"""
