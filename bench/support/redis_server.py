"""A private Redis server that keeps an append-only file, and what it can do on its own.

One rule: on a unix socket in the benchmark's folder; nobody else's Redis is ever touched.
"""

import csv
import shutil
import subprocess
from pathlib import Path

from bench.errors import BenchError
from bench.support import redis_program
from bench.support.processes import Bench
from queues import errors
from queues.redis import connection

_COMMANDS = 100_000
_CLIENTS = 50
_BENCHMARK = "redis-benchmark"
_SHORT_LISTS = ("--hash-max-listpack-entries", "64")
"""As `torchq local` runs it, too: up to 512 fields of a hash would be looked through one by one."""


def start(bench: Bench) -> str:
    """Start it; the URL once it answers. Synced to disk every second, as `torchq local` runs it. LocalError where there
    is no server."""
    path = bench.folder / "redis.sock"
    arguments = [redis_program.path(), "--port", "0", "--unixsocket", str(path), "--dir", str(bench.folder)]
    bench.start("redis", [*arguments, "--save", "", "--appendonly", "yes", "--appendfsync", "everysec", *_SHORT_LISTS])
    client = connection.connect(f"unix://{path}", client_name="torchq-bench")
    bench.wait(lambda: path.exists() and _answers(client), "the Redis server")
    client.close()
    return f"unix://{path}"


def operations_per_second(folder: Path) -> dict[str, float]:
    """SETs per second of redis-benchmark, 50 clients: one by one, and 16 in a row. Nothing where it is not on PATH."""
    if shutil.which(_BENCHMARK) is None:
        return {}
    return {"redis_ops_per_s": _benchmark(folder, 1), "redis_pipelined_ops_per_s": _benchmark(folder, 16)}


def parse(text: str) -> float:
    """The rate in redis-benchmark's CSV. BenchError if there is none."""
    for row in csv.DictReader(text.splitlines()):
        if row.get("rps"):
            return float(row["rps"])
    raise BenchError(f"redis-benchmark printed no rate: {text[:200]!r}")


def _benchmark(folder: Path, pipeline: int) -> float:
    socket = str(folder / "redis.sock")
    command = [_BENCHMARK, "-s", socket, "-t", "set", "-n", str(_COMMANDS), "-c", str(_CLIENTS)]
    done = subprocess.run([*command, "-P", str(pipeline), "--csv"], capture_output=True, text=True, check=False)
    return parse(done.stdout)


def _answers(client: connection.Connection) -> bool:
    try:
        with connection.translate_errors(client):
            return bool(client.ping())
    except errors.QueueError:
        return False
