"""The node: it runs the containers of pods as processes of this machine and reports their status.

Where a pod goes is decided in `scheduler`.
"""
