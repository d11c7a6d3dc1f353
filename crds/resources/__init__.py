"""Amounts of resources: quantities, names, sums and comparisons.

The requests of a job are in `crds.torchjob`.
"""
