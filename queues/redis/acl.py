"""The Redis accounts of an installation, as lines of an ACL file.

One rule: least rights. One account for coordinator and workers: our keys and RQ's, the commands in use, no
administration, no channels. One that only reads, for `torchq doctor` and other commands: what a script of its own asks
for, Redis refuses as if it had been asked outright. Needs Redis 7 or newer (rights to read alone).
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
class Account:
    """Who may ask Redis for what."""

    name: str
    keys: str
    """How the patterns of its keys begin."""
    commands: tuple[str, ...]

    def line(self, password: str = "") -> str:
        """Its line in an ACL file; only the hash of the password is in it. Without one nobody can log in."""
        secret = f"#{hashlib.sha256(password.encode()).hexdigest()}" if password else "resetpass"
        keys = " ".join(f"{self.keys}{prefix}*" for prefix in (redis_keys.PREFIX, redis_keys.RQ_PREFIX))
        commands = " ".join(f"+{name}" for name in sorted(self.commands))
        return f"user {self.name} on {secret} resetkeys {keys} resetchannels -@all {commands}"


WRITER = Account("torchq", "~", (*_CONNECT, *_SCRIPTS, *_READ, *_WRITE, "info"))
"""Coordinator and workers. INFO tells a server that was started again."""
READER = Account("torchq-reader", "%R~", (*_CONNECT, *_SCRIPTS, *_READ))
"""Commands that look at Redis."""
NOBODY = "user default off resetpass resetkeys resetchannels -@all"
"""Everybody who does not say who they are."""


def acl(writer: str = "", reader: str = "") -> str:
    """An ACL file, given the passwords of both accounts."""
    return "\n".join((NOBODY, WRITER.line(writer), READER.line(reader), ""))
