"""What happens to a job in its present state: its queue, its charge, why it waits. Pure.

The loop that carries it out is in `leader`.
"""
