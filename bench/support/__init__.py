"""What benchmarks share: servers, load, processes, reports.

Nothing here is measured.
"""
