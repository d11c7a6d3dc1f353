"""What a user of `torchq run` and of the package `torchq` meets: packing, starting, calling, following, waiting.

How jobs are scheduled belongs in the other benchmarks."""
