"""Starts a private Redis server with an append-only file, and measures its own speed.

One rule: the server listens on a unix socket in the benchmark's folder, and no other Redis is ever used. The program of
the server is the one that the environment variable TORCHQ_BENCH_REDIS_SERVER names, else redis-server on PATH, with
which the figures of bench/README.md were measured, else the one that `torchq local up` starts.
"""

import csv
import os
import shutil
import subprocess
from pathlib import Path

from bench.errors import BenchError
from bench.support.processes import Bench
from coordinator.local import stack
from queues import errors
from queues.redis import connection

VARIABLE = "TORCHQ_BENCH_REDIS_SERVER"
_COMMANDS = 100_000
_CLIENTS = 50
_BENCHMARK = "redis-benchmark"
_SHORT_LISTS = ("--hash-max-listpack-entries", "64")
"""The same setting as in `torchq local`. By default, Redis searches up to 512 fields of a hash one by one."""


def program() -> str:
    """Return the path of the server program. Raises LocalError if there is no server program."""
    return os.environ.get(VARIABLE) or shutil.which("redis-server") or stack.redis_server()


def version(printed: str) -> str:
    """Return name and version from a server's text: `redis 7.0.15` for `Redis server v=7.0.15 sha=...`."""
    fields = printed.split()
    return next((f"{fields[0].lower()} {field[2:]}" for field in fields if field.startswith("v=")), "")


def start(bench: Bench) -> str:
    """Start the server, and return its URL once it answers. Raises LocalError if there is no server program.

    As in `torchq local`, the server syncs its file to disk every second.
    """
    path = bench.folder / "redis.sock"
    arguments = [program(), "--port", "0", "--unixsocket", str(path), "--dir", str(bench.folder)]
    bench.start("redis", [*arguments, "--save", "", "--appendonly", "yes", "--appendfsync", "everysec", *_SHORT_LISTS])
    client = connection.connect(f"unix://{path}", client_name="torchq-bench")
    bench.wait(lambda: path.exists() and _answers(client), "the Redis server")
    client.close()
    return f"unix://{path}"


def operations_per_second(folder: Path) -> dict[str, float]:
    """Return the SETs per second of redis-benchmark with 50 clients, one by one and in pipelines of 16.

    The result is empty if redis-benchmark is not on PATH.
    """
    if shutil.which(_BENCHMARK) is None:
        return {}
    return {"redis_ops_per_s": _benchmark(folder, 1), "redis_pipelined_ops_per_s": _benchmark(folder, 16)}


def parse(text: str) -> float:
    """Return the rate in redis-benchmark's CSV. Raises BenchError if the CSV has no rate."""
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
