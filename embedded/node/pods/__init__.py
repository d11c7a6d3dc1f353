"""One pod on the node: its containers, volumes, environment, and the worker that leads it through its life.

Processes are in `runs`.
"""
