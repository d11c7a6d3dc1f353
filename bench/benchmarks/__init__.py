"""One module for each benchmark.

The code that several benchmarks share is in `support`.
"""
