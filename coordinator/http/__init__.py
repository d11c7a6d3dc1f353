"""The port of the coordinator: probes, status, and the queue API.

The documents themselves come from `query`.
"""
