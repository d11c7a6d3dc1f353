"""The Redis users of an installation, as lines of an ACL file.

One rule: least rights. The user of the coordinator has torchq's keys and RQ's, the commands in use, no administration
and no channels; workers may share the user, or have a user that writes only what workers write. Another user only
reads, for `torchq doctor` and other commands. Redis checks the commands inside a Lua script as if the user sent them
directly. Needs Redis 7 or newer (rights to read only).
"""

import hashlib
from dataclasses import dataclass

from queues import redis_keys

_CONNECT = ("hello", "auth", "ping", "select", "client|setname", "multi", "exec", "discard")
_SCRIPTS = ("eval", "evalsha")
_READ = (
    *("get", "mget", "exists", "scan", "time"),
    *("hget", "hmget", "hgetall", "hexists", "hkeys", "hvals", "hlen", "hscan", "hstrlen"),
    *("llen", "lrange", "smembers"),
    *("zcard", "zrange", "zrangebyscore", "zrank", "zscan", "zscore"),
)
_WRITE = (
    *("set", "del", "unlink", "incr", "incrby", "decr", "expire", "persist", "watch", "unwatch"),
    *("hset", "hdel", "hincrby", "hincrbyfloat"),
    *("lpush", "rpush", "lpop", "lrem", "lmove", "blmove"),
    *("sadd", "srem", "zadd", "zrem", "zremrangebyscore"),
    "xadd",
)


@dataclass(frozen=True, slots=True)
class RedisUser:
    """A Redis user and the rights that it has."""

    name: str
    keys: tuple[str, ...]
    """Its key patterns, in the form of the ACL: ~ to read and write, %R~ to read only."""
    commands: tuple[str, ...]
    channels: str = "resetchannels"

    def acl_line(self, password: str = "") -> str:
        """Return the user's line in an ACL file, with the hash of the password. Without a password, no login as this
        user is possible."""
        secret = f"#{hashlib.sha256(password.encode()).hexdigest()}" if password else "resetpass"
        keys = " ".join(("resetkeys", *self.keys))
        commands = " ".join(f"+{name}" for name in sorted(self.commands))
        return f"user {self.name} on {secret} {keys} {self.channels} -@all {commands}"


_ALL = (f"{redis_keys.PREFIX}*", f"{redis_keys.RQ_PREFIX}*")
_OF_WORKERS = (
    f"{redis_keys.WORK}*",
    f"{redis_keys.RQ_PREFIX}*",
    *(redis_keys.RESERVATIONS, redis_keys.USAGE, redis_keys.SHARED),  # a worker raises the charge of larger pods
    *(f"{redis_keys.PREFIX}{name}" for name in ("change", "changed")),
    *(redis_keys.PROBE, f"{redis_keys.PREFIX}none"),
)
"""The keys that workers write."""
WRITER = RedisUser("torchq", tuple(f"~{keys}" for keys in _ALL), (*_CONNECT, *_SCRIPTS, *_READ, *_WRITE, "info"))
"""The user of the coordinator, and of workers without a user of their own.

It may call INFO, by which a restart of the server is noticed, and a server that cannot hold the queues."""
WORKER = RedisUser(
    "torchq-worker", (*(f"~{keys}" for keys in _OF_WORKERS), f"%R~{redis_keys.PREFIX}*"), WRITER.commands
)
"""The user of workers alone. It cannot change settings, the order, accounts, reports or the epoch. It writes
reservations, which are admissions."""
READER = RedisUser("torchq-reader", tuple(f"%R~{keys}" for keys in _ALL), (*_CONNECT, *_SCRIPTS, *_READ, "info"))
"""The user of commands that only read."""
ASKING = RedisUser("torchq", (), ("hello", "auth", "ping", "sentinel|get-master-addr-by-name"))
"""The user of all processes on the sentinels, which they ask for the master and for nothing else."""
INTERNAL = (
    RedisUser(
        "sentinel",
        (),
        (
            *("ping", "info", "role", "multi", "exec", "slaveof", "replicaof", "config|rewrite"),
            *("client|setname", "client|kill", "script|kill", "subscribe", "publish"),
        ),
        "allchannels",
    ),
    RedisUser("replica", (), ("ping", "psync", "replconf")),
)
"""The users by which sentinels and replicas use a server, as the documentation of Redis lists their rights."""
DEFAULT_USER_OFF = "user default off resetpass resetkeys resetchannels -@all"
"""The ACL line that takes every right from clients that do not log in."""


def acl(writer: str = "", reader: str = "", internal: str = "", worker: str = "") -> str:
    """Return the text of an ACL file for the passwords of the users, and of the internal users unless `internal` is
    empty.
    """
    own = (WRITER.acl_line(writer), WORKER.acl_line(worker), READER.acl_line(reader))
    more = [user.acl_line(internal) for user in INTERNAL if internal]
    return "\n".join((DEFAULT_USER_OFF, *own, *more, ""))


def sentinel_acl(password: str = "") -> str:
    """Return the lines for the ACL file of a sentinel. The file keeps the user `default`, by which other sentinels
    ask."""
    return f"{ASKING.acl_line(password)}\n"
