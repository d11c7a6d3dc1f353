"""The changes of the numbers of workers that the leader makes by itself: idle growth, and giving it back.

One rule: nothing here decides. `queues.resizing` plans, and `coordinator.routing.targets` judges what was written.
"""
