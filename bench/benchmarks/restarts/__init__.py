"""Benchmarks of restarts: how soon large jobs are asked, and how soon small ones run again."""
