"""Amounts of resources: quantities, names, sums and comparisons.

What a job asks for is in `crds.torchjob`.
"""
