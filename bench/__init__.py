"""Benchmarks: how fast and how fair torchq is. Not installed.

The modules of this folder are the command line.
"""
