"""One module for each benchmark.

What several of them use is in `support`.
"""
