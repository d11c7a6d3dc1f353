"""Which Redis server the benchmarks start.

One rule: the one that the environment variable TORCHQ_BENCH_REDIS_SERVER names, else a redis-server on PATH, with which
the figures of bench/README.md were measured, else the one that `torchq local up` starts.
"""

import os
import shutil

from coordinator.local import stack

VARIABLE = "TORCHQ_BENCH_REDIS_SERVER"


def path() -> str:
    """The path of the server. LocalError where there is none."""
    return os.environ.get(VARIABLE) or shutil.which("redis-server") or stack.redis_server()


def version(printed: str) -> str:
    """From `Redis server v=7.0.15 sha=...` or `Valkey server v=9.1.2 sha=...`: `redis 7.0.15`, `valkey 9.1.2`."""
    words = printed.split()
    return next((f"{words[0].lower()} {word[2:]}" for word in words if word.startswith("v=")), "")
