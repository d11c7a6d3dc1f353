"""How many waiting jobs of each queue are read from the store.

One rule: pure. The leader, forecasts and explanations all read this number of jobs, so that they see the same jobs.
"""

DEPTH = 128
"""The number of jobs that are read of one queue by default."""
LEAST = 2
"""The least number of jobs that are read of one queue, however many queues there are."""
IN_ALL = 32_768
"""The number of jobs that are read of all queues together. These jobs cost memory, and time when they are first
read.
"""


def per_queue(queues: int, most: int = DEPTH) -> int:
    """Return how many jobs are read of each queue, at most `most`. `queues` is the number of queues."""
    return max(LEAST, min(most, IN_ALL // max(1, queues)))
