"""The Redis users of an installation, as lines of an ACL file.

One rule: least rights. The coordinator and the workers share one user: torchq's keys and RQ's, the commands that they
use, no administration, no channels. A second user only reads, for `torchq doctor` and other commands. Redis checks the
commands inside a Lua script as if the user sent them directly. Needs Redis 7 or newer (rights to read only).
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
    keys: str
    """The prefix of its key patterns in the ACL: ~ to read and write, %R~ to read only; empty: no keys."""
    commands: tuple[str, ...]
    channels: str = "resetchannels"

    def acl_line(self, password: str = "") -> str:
        """Return the user's line in an ACL file, with the hash of the password. Without a password, no login as this
        user is possible."""
        secret = f"#{hashlib.sha256(password.encode()).hexdigest()}" if password else "resetpass"
        prefixes = (redis_keys.PREFIX, redis_keys.RQ_PREFIX) if self.keys else ()
        keys = " ".join(("resetkeys", *(f"{self.keys}{prefix}*" for prefix in prefixes)))
        commands = " ".join(f"+{name}" for name in sorted(self.commands))
        return f"user {self.name} on {secret} {keys} {self.channels} -@all {commands}"


WRITER = RedisUser("torchq", "~", (*_CONNECT, *_SCRIPTS, *_READ, *_WRITE, "info"))
"""The user of the coordinator and the workers. It may call INFO, by which a restart of the server is noticed, and a
server that cannot hold the queues."""
READER = RedisUser("torchq-reader", "%R~", (*_CONNECT, *_SCRIPTS, *_READ, "info"))
"""The user of commands that only read."""
ASKING = RedisUser("torchq", "", ("hello", "auth", "ping", "sentinel|get-master-addr-by-name"))
"""The user of all processes on the sentinels, which they ask for the master and for nothing else."""
INTERNAL = (
    RedisUser(
        "sentinel",
        "",
        (
            *("ping", "info", "role", "multi", "exec", "slaveof", "replicaof", "config|rewrite"),
            *("client|setname", "client|kill", "script|kill", "subscribe", "publish"),
        ),
        "allchannels",
    ),
    RedisUser("replica", "", ("ping", "psync", "replconf")),
)
"""The users by which sentinels and replicas use a server, as the documentation of Redis lists their rights."""
DEFAULT_USER_OFF = "user default off resetpass resetkeys resetchannels -@all"
"""The ACL line that takes every right from clients that do not log in."""


def acl(writer: str = "", reader: str = "", internal: str = "") -> str:
    """Return the text of an ACL file for the passwords of both users, and of the internal users unless `internal` is
    empty.
    """
    own = (WRITER.acl_line(writer), READER.acl_line(reader))
    more = [user.acl_line(internal) for user in INTERNAL if internal]
    return "\n".join((DEFAULT_USER_OFF, *own, *more, ""))


def sentinel_acl(password: str = "") -> str:
    """Return the lines for the ACL file of a sentinel. The file keeps the user `default`, by which other sentinels
    ask."""
    return f"{ASKING.acl_line(password)}\n"
