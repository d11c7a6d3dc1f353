"""The node: it runs the containers of pods as processes of this machine and reports their status.

`scheduler` decides on which node a pod runs.
"""
