"""The names of every Redis key torchq owns, in one place.

One rule: all state is JSON or plain numbers under one prefix, may be lost at any moment, and is rebuilt from the
cluster.

Queues (written by the coordinator's scripts only):
    torchq:epoch                 string   epoch of the last rebuild; missing means: refuse everything but a rebuild
    torchq:revision              string   rises with every change of settings
    torchq:reservations          hash     job key -> JSON reservation {queue, kind, attempt, epoch, charge, pick, port}
    (the rest of the queues' keys: queues/lua/*.lua say what they hold)
Work (shared by coordinator and workers):
    torchq:work:*                see queues/lua/*.lua
"""

PREFIX = "torchq:"
EPOCH = f"{PREFIX}epoch"
REVISION = f"{PREFIX}revision"
RESERVATIONS = f"{PREFIX}reservations"
