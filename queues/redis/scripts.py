"""Lua scripts: files in queues/lua, run by their SHA-1.

One rule: a script is idempotent, because the client may send it again after a lost answer.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from typing import Any

from queues.redis import connection


class Script:
    """A Lua file `queues/lua/<name>.lua`, after the preludes it needs: files that only define local functions."""

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
        """Run it; the answer is as redis-py gives it (bytes, integers, lists). Raises `queues.errors.QueueError`."""
        return connection.evaluate(client, self.source, self.sha, keys, arguments)

    def later(self, line: connection.Line, arguments: Sequence[str | bytes | int | float]) -> Callable[[], Any]:
        """Begin to run it; what is returned waits for the answer. What begins later on the line is done later."""
        return line.send(self.source, self.sha, arguments)

    def each(self, client: connection.Connection, calls: Iterable[Sequence[str | int | float]]) -> None:
        """Run it for each list of arguments, without waiting for one answer before the next call."""
        connection.evaluate_all(client, self.source, self.sha, calls)


def _read(name: str) -> str:
    return resources.files("queues.lua").joinpath(f"{name}.lua").read_text(encoding="utf-8")
