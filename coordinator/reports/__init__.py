"""What the training code of jobs reports: its checks, its way into Redis and back, and the port that takes it.

The package does not judge reports.
"""
