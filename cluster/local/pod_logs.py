"""A container's log over HTTP: the file its shim writes, whole, its end, or as it grows.

One rule: a followed log ends when the container has exited and every byte of it has been sent, not before.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from aiohttp import web

from cluster.api import Manifest
from cluster.local import numbers, options
from cluster.local.layout import Layout
from cluster.local.log_times import Stamper, Times
from cluster.local.refusals import bad_request

_PIECE = 64 * 1024
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class LogWish:
    """What a log request asked for."""

    folder: Path
    """The folder of the container's run."""
    follow: bool
    tail: int | None
    """Only the last lines."""
    most: int | None
    """Bytes after which the answer ends."""
    since: float | None = None
    """Only what was written since then, in seconds since the epoch."""
    stamped: bool = False
    """With the time before each line."""


def wish(pod: Manifest, layout: Layout, query: Mapping[str, str]) -> LogWish:
    """Read a log request. BadRequest if there is no such container, or it has not started."""
    container = _container(pod, query.get("container", ""))
    return LogWish(
        folder=_run(pod, container, layout, previous=options.flag(query, "previous")),
        follow=options.flag(query, "follow"),
        tail=_number(query, "tailLines"),
        most=_number(query, "limitBytes"),
        since=_since(query),
        stamped=options.flag(query, "timestamps"),
    )


def _since(query: Mapping[str, str]) -> float | None:
    if "sinceSeconds" in query and "sinceTime" in query:
        raise bad_request("at most one of `sinceTime` or `sinceSeconds` may be specified")
    if "sinceSeconds" in query:
        seconds = _number(query, "sinceSeconds") or 0
        if not seconds:
            raise bad_request("sinceSeconds: must be greater than 0")
        return time.time() - seconds
    if "sinceTime" not in query:
        return None
    try:
        return datetime.fromisoformat(query["sinceTime"]).timestamp()
    except (ValueError, OverflowError):  # a time before the year 1 or after the year 9999 in UTC
        raise bad_request(f"sinceTime: {query['sinceTime']!r} is no time in RFC 3339") from None


def _number(query: Mapping[str, str], name: str) -> int | None:
    if name not in query:
        return None
    value = numbers.integer(name, query[name])
    if value < 0:
        raise bad_request(f"{name}: must not be negative")
    return value


def _container(pod: Manifest, asked: str) -> str:
    spec = pod["spec"]
    names: list[str] = [c["name"] for field in ("containers", "initContainers") for c in spec.get(field) or ()]
    if asked and asked not in names:
        raise bad_request(f"container {asked} is not valid for pod {pod['metadata']['name']}: choose one of {names}")
    return asked or names[0]


def _run(pod: Manifest, container: str, layout: Layout, *, previous: bool) -> Path:
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    restarts = _restarts(pod.get("status") or {}, container)
    restart = restarts - 1 if previous else restarts
    folder = layout.container(uid, container, restart)
    if previous and restart < 0:
        raise bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
    if (folder / "output").exists():
        return folder
    # The next run is announced before it starts: until then the log is the last run's.
    earlier = layout.container(uid, container, restart - 1)
    if not previous and restart > 0 and (earlier / "output").exists():
        return earlier
    raise bad_request(f'container "{container}" in pod "{name}" is waiting to start')


def _restarts(status: Mapping[str, Any], container: str) -> int:
    shown = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    return next((int(item.get("restartCount") or 0) for item in shown if item.get("name") == container), 0)


def pieces(log: BinaryIO) -> Iterator[bytes]:
    """What is in the log now, from where it was read to."""
    while piece := log.read(_PIECE):
        yield piece


def tail_start(path: Path, lines: int) -> int:
    """The position at which the last lines of a file begin."""
    end = position = path.stat().st_size
    if not lines:
        return end
    found = 0
    with open(path, "rb") as file:
        while position > 0:
            size = min(_PIECE, position)
            position -= size
            file.seek(position)
            piece = file.read(size)
            for index in range(len(piece) - 1, -1, -1):
                # The newline at the very end closes the last line; it does not begin another.
                if piece[index] == 0x0A and position + index != end - 1:
                    found += 1
                    if found >= lines:
                        return position + index + 1
    return 0


def start(wanted: LogWish) -> int:
    """The position from which a log is sent."""
    path = wanted.folder / "output"
    position = tail_start(path, wanted.tail) if wanted.tail is not None else 0
    if wanted.since is None:
        return position
    earliest = Times(wanted.folder).start(wanted.since)
    return path.stat().st_size if earliest is None else max(position, _line_start(path, earliest))


def _line_start(path: Path, position: int) -> int:
    """Where the first line begins that begins at a position or later."""
    if position == 0:
        return 0
    with open(path, "rb") as file:
        file.seek(position - 1)
        return position - 1 + len(file.readline())


async def serve(request: web.BaseRequest, wanted: LogWish) -> web.StreamResponse:
    """Send the log. The file is held open: it may be removed, with its pod, while somebody follows it."""
    try:
        position = start(wanted)
        log = open(wanted.folder / "output", "rb")  # noqa: SIM115 - closed below
    except FileNotFoundError:
        raise bad_request("the log is gone: the pod has been removed from its node") from None
    with log:
        log.seek(position)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        await _send(response, log, wanted)
    return response


async def _send(response: web.StreamResponse, log: BinaryIO, wanted: LogWish) -> None:
    left = wanted.most
    stamper = Stamper(Times(wanted.folder)) if wanted.stamped else None
    while True:
        exited = _is_over(wanted.folder)
        position = log.tell()
        for piece in pieces(log):
            text = stamper.stamped(piece, position) if stamper else piece
            position += len(piece)
            allowed = text if left is None else text[:left]
            await response.write(allowed)
            left = None if left is None else left - len(allowed)
        if exited or not wanted.follow or left == 0:
            return
        await asyncio.sleep(_POLL_SECONDS)


def _is_over(folder: Path) -> bool:
    # Asked before the last read, so that what was written before the exit is read. A folder that is gone is over too.
    return (folder / "exited").exists() or not folder.exists()
