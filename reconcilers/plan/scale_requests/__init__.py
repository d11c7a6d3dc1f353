"""The steps of a scale request, from its creation to its deletion.

How a job takes up a new number of workers is in `reconcilers.plan.scaling`.
"""
