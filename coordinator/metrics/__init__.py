"""The metrics of the processes: what they count, how a supervisor adds them up, and the page /metrics.

It serves no HTTP: `coordinator.http` answers with these pages.
"""
