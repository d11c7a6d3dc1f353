"""Processes that create TorchJobs as fast as they can, for several benchmarks."""
