"""What only the benchmark `kueue-baseline` needs: its scenario, and where the held time of its jobs goes.

What starts processes or counts requests is in `bench.support`.
"""
