"""The connection to Redis: URL, access rules, scripts, encodings of values.

`queues.redis.connection` is the only module that imports the library `redis`.
"""
