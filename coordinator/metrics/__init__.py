"""The metrics of the processes: what the processes count, how a supervisor adds the counts up, and the page /metrics.

The package serves no HTTP: `coordinator.http` answers with these pages.
"""
