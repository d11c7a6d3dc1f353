"""The live screen of `torchq top`: what it shows, the keys it obeys, and the loop that joins them.

The documents that it shows belong to `coordinator.query`; without a terminal, the command prints them as text.
"""
