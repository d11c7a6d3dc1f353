"""A Redis server for this machine, and its files on a full disk.

The data that torchq keeps in Redis are described in `queues`.
"""
