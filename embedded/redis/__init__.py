"""A Redis server for this machine, and its files on a full disk.

What torchq keeps in Redis is in `queues`.
"""
