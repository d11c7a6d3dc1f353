"""The decisions about a job in its present state: its queue, its charge, why it waits. Pure.

The loop that carries them out is in `leader`.
"""
