"""What a process knows of itself and sets for itself: the loops in it that must turn, and its garbage collector.

One rule: nothing here knows the work of a loop.
"""
