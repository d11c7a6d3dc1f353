"""Who asks a process of torchq, and what they may be told: readers, and the reviews of their tokens.

The answers themselves, and what of them a reader gets, are elsewhere (`coordinator.query`).
"""
