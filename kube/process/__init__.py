"""The facts that a process knows about itself: the loops in it that must turn.

One rule: nothing here knows the work of a loop.
"""
