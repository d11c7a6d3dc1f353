"""A container's log over HTTP: what its shim writes, whole, its end, or as it grows.

One rule: a followed log ends when the container has exited and every byte of it has been sent, not before. Where output
was removed, because a container keeps only so much, a line in its place says so.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from aiohttp import web

from embedded import log_files
from embedded.apiserver.status_errors import bad_request
from embedded.apiserver.wire import integers, options
from embedded.layout import Layout
from embedded.log_files import LogReader
from embedded.log_times import Stamper, Times
from kube.api import Manifest

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
    value = integers.integer(name, query[name])
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
    if log_files.files(folder):
        return folder
    # The next run is announced before it starts: until then the log is the last run's.
    earlier = layout.container(uid, container, restart - 1)
    if not previous and restart > 0 and log_files.files(earlier):
        return earlier
    if (folder / "started").exists():
        raise bad_request(
            f'the log of this run of container "{container}" in pod "{name}" was removed: later output took its room'
        )
    raise bad_request(f'container "{container}" in pod "{name}" is waiting to start')


def _restarts(status: Mapping[str, Any], container: str) -> int:
    shown = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    return next((int(item.get("restartCount") or 0) for item in shown if item.get("name") == container), 0)


def start(wanted: LogWish) -> int:
    """The position from which a log is sent. FileNotFoundError if it is gone."""
    position = 0 if wanted.tail is None else log_files.tail_start(wanted.folder, wanted.tail)
    if wanted.since is None:
        return position
    earliest = Times(wanted.folder).start(wanted.since)
    if earliest is None:
        return log_files.span(wanted.folder)[1]
    return max(position, log_files.line_start(wanted.folder, earliest))


async def serve(request: web.BaseRequest, wanted: LogWish) -> web.StreamResponse:
    """Send the log. The file that is read is held open: it may be removed, with its pod, while somebody follows it."""
    try:
        position = start(wanted)
        first = log_files.span(wanted.folder)[0]
    except FileNotFoundError:
        raise bad_request("the log is gone: the pod has been removed from its node") from None
    reader = LogReader(wanted.folder, 0 if position <= first else position)
    try:
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        await _send(response, reader, wanted)
    finally:
        reader.close()
    return response


async def _send(response: web.StreamResponse, reader: LogReader, wanted: LogWish) -> None:
    left = wanted.most
    lines = _Lines(reader, Stamper(Times(wanted.folder)) if wanted.stamped else None)
    while True:
        exited = _is_over(wanted.folder)
        while text := lines.read():
            allowed = text if left is None else text[:left]
            await response.write(allowed)
            left = None if left is None else left - len(allowed)
            if left == 0:
                return
        if exited or not wanted.follow or left == 0:
            return
        await asyncio.sleep(_POLL_SECONDS)


class _Lines:
    """What is sent of a log: its text, with what was asked for in between."""

    def __init__(self, reader: LogReader, stamper: Stamper | None) -> None:
        self._reader = reader
        self._stamper = stamper
        self._line_is_open = False

    def read(self) -> bytes:
        """What comes next; nothing at the end of what there is."""
        before = self._reader.position
        piece = self._reader.read()
        if not piece:
            return b""
        begin = self._reader.position - len(piece)
        removed = self._shown(self._gap(begin - before), begin) if begin > before else b""
        text = self._shown(piece, begin)
        self._line_is_open = not piece.endswith(b"\n")
        return removed + text

    def _shown(self, text: bytes, position: int) -> bytes:
        return self._stamper.stamped(text, position) if self._stamper else text

    def _gap(self, count: int) -> bytes:
        end = "\n" if self._line_is_open else ""
        return f"{end}[torchq: {count} bytes of older output were removed: see container-log-max-size]\n".encode()


def _is_over(folder: Path) -> bool:
    # Asked before the last read, so that what was written before the exit is read. A folder that is gone is over too.
    return (folder / "exited").exists() or not folder.exists()
