"""What keeps a benchmark from running.

    BenchError   the message says what is missing or what went wrong

One rule: a benchmark that could not measure says so and prints no figure.
"""


class BenchError(Exception):
    """There is nothing to report."""
