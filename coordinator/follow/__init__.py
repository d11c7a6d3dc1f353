"""Following jobs: their changes, their ends, their output and their reports.

No question of a command line belongs here. Everything works from a `Cluster` and values.
"""
