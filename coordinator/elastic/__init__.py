"""The changes of the room of admitted jobs that the leader makes by itself: idle growth, giving it back, and taking it
back from jobs that their schedulers do not bind.

One rule: nothing here decides. `queues.resizing` plans, and `coordinator.elastic.targets` judges the written targets.
"""
