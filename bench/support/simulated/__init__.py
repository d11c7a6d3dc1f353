"""Simulations of queues under a virtual clock: how one is played, and how pods get nodes in it.

What is simulated, and which options there are, is in `bench.benchmarks.simulate`.
"""
