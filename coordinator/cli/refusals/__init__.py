"""Refusals of the API server in plain words: what is wrong with a field, in which line, and which value would be valid.

What decides whether an object is valid belongs to the API server and to `crds`.
"""
