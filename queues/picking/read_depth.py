"""How many waiting jobs of each queue are read from the store.

One rule: pure. The leader, forecasts and explanations all read this many, so that they see the same jobs.
"""

DEPTH = 128
"""Jobs that are read of one queue by default."""
LEAST = 2
"""Jobs that are read of one queue however many queues there are."""
IN_ALL = 32_768
"""Jobs that are read of all queues together: they cost memory, and time when they are read first."""


def per_queue(queues: int, most: int = DEPTH) -> int:
    """Return how many jobs of each of some queues are read, at most `most`."""
    return max(LEAST, min(most, IN_ALL // max(1, queues)))
