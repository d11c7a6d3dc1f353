"""Refusals of the API server in plain words: what is wrong with a field, in which line, and what would be right.

What decides whether an object is valid belongs to the API server and to `crds`.
"""
