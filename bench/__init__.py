"""Benchmarks: how fast and how fair torchq is. Not installed.

Modules of this folder are their command line.
"""
