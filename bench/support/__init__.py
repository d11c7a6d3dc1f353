"""The parts that benchmarks share: servers, load, processes, reports.

What is measured is in `bench.benchmarks`.
"""
