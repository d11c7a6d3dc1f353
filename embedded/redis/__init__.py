"""A Redis server for this machine, and the care for its files.

What torchq keeps in Redis is in `queues`.
"""
