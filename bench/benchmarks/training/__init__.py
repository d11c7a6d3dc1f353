"""Benchmarks of what training code meets: changes of its world, and reports."""
