"""The error of a benchmark.

    BenchError   the message says what is missing or what failed

One rule: a benchmark that could not measure raises an error and prints no figure.
"""


class BenchError(Exception):
    """The benchmark could not measure, so there are no figures."""
