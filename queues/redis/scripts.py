"""Lua scripts: files in queues/lua, which Redis runs by their SHA-1.

One rule: a script is idempotent, because the client may send it again after a lost answer.
"""

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import resources
from typing import Any

from kube.process.meter import Meter
from queues import metrics
from queues.redis import connection


class Script:
    """The Lua file `queues/lua/<name>.lua` after its preludes, which are files that only define local functions."""

    def __init__(self, name: str, preludes: Sequence[str] = ()) -> None:
        self.name = name
        self.source = "\n".join(_read(part) for part in (*preludes, name))
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()

    def __call__(
        self,
        client: connection.Connection,
        keys: Sequence[str] = (),
        arguments: Sequence[str | bytes | int | float] = (),
    ) -> Any:
        """Run the script. Return the answer of the script as redis-py decodes it (bytes, integers, lists). Raises
        `queues.errors.QueueError`."""
        with self._measured(connection.meter(client)):
            return connection.evaluate(client, self.source, self.sha, keys, arguments)

    def send(
        self, pipeline: connection.ScriptPipeline, arguments: Sequence[str | bytes | int | float]
    ) -> Callable[[], Any]:
        """Send the script on a pipeline. Return a function that waits for the answer. The server runs the scripts of
        one pipeline in the order in which they were sent."""
        began, answer = time.perf_counter(), pipeline.send(self.source, self.sha, arguments)

        def wait() -> Any:
            try:
                return answer()
            finally:
                pipeline.meter.observe(metrics.REDIS_SECONDS, time.perf_counter() - began, self.name)

        return wait

    def run_all(self, client: connection.Connection, calls: Iterable[Sequence[str | int | float]]) -> None:
        """Run the script once per list of arguments, without a wait for each answer before the next call."""
        with self._measured(connection.meter(client)):
            connection.evaluate_all(client, self.source, self.sha, calls)

    @contextlib.contextmanager
    def _measured(self, meter: Meter) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            meter.observe(metrics.REDIS_SECONDS, time.perf_counter() - began, self.name)


def _read(name: str) -> str:
    return resources.files("queues.lua").joinpath(f"{name}.lua").read_text(encoding="utf-8")
