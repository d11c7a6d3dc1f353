"""The connection to Redis: URL, access rules, scripts, encodings of values.

Only `queues.redis.connection` and `queues.redis.sockets` import the library `redis`.
"""
