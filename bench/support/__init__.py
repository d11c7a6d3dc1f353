"""The parts that benchmarks share: servers, load, processes, reports.

The measurements are in `bench.benchmarks`.
"""
