"""The live screen of `torchq top`: what the screen shows, the keys it obeys, and the loop that joins them.

The documents that the screen shows belong to `coordinator.query`; without a terminal, the command prints them as text.
"""
