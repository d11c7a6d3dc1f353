"""The program that the benchmarks start as Redis server.

One rule: the program is the one that the environment variable TORCHQ_BENCH_REDIS_SERVER names, else redis-server on
PATH, else the one that `torchq local up` starts. The figures of bench/README.md were measured with redis-server on
PATH.
"""

import os
import shutil

from coordinator.local import stack

VARIABLE = "TORCHQ_BENCH_REDIS_SERVER"


def path() -> str:
    """Return the path of the server program. Raises LocalError if there is none."""
    return os.environ.get(VARIABLE) or shutil.which("redis-server") or stack.redis_server()


def version(printed: str) -> str:
    """Return the name and version in a server's text: `redis 7.0.15` for `Redis server v=7.0.15 sha=...`.

    For `Valkey server v=9.1.2 sha=...` it is `valkey 9.1.2`.
    """
    fields = printed.split()
    return next((f"{fields[0].lower()} {field[2:]}" for field in fields if field.startswith("v=")), "")
