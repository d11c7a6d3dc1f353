"""The reports of the training code of jobs: their checks, their way into Redis and back, and the port that takes them.

The package does not judge reports.
"""
