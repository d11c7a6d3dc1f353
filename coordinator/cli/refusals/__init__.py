"""Refusals of the API server in plain words: what is wrong with a field, in which line, and which value would be valid.

The rules of valid objects belong to the API server and to `crds`.
"""
