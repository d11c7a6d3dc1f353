"""What a visitor may change from a page: the verbs, the question before each of them, and the change itself.

The patches are those of `coordinator.control`.
"""
