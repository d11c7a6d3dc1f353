"""A container's log over HTTP: the output that its shim has written, the last lines of it, or the output as it grows.

One rule: a followed log ends only after the container has exited and every byte has been sent. A line marks the place
of output that was removed because the log has a size limit.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from crds import timestamps
from embedded import log_files
from embedded.apiserver.status_errors import bad_request
from embedded.apiserver.wire import go_integers, options
from embedded.layout import Layout
from embedded.log_files import LogReader
from embedded.log_times import LogTimes, Stamper
from kube.api import Manifest

_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class PodLogOptions:
    """The options of a log request, as those of Kubernetes' PodLogOptions."""

    folder: Path
    """The folder of the container's run."""
    follow: bool
    tail: int | None
    """The number of last lines to send; None for all lines."""
    most: int | None
    """The bytes after which the answer ends; None for no limit."""
    since: float | None = None
    """The time of the first output to send, in seconds since the epoch; None for all output."""
    stamped: bool = False
    """Whether each line begins with its time."""
    positions: bool = False
    """Whether each line begins with `@`, the number of bytes before it in the output of the run, and a space. No line
    marks removed output then: the positions show it. Kubernetes has no such option."""
    bound: str = "container-log-max-size"
    """The bound for which output was removed."""


def parse(pod: Manifest, layout: Layout, query: Mapping[str, str]) -> PodLogOptions:
    """Return the options of a log request.

    Raise StatusError (BadRequest) if the container does not exist or has not started.
    """
    container = _container(pod, query.get("container", ""))
    return options_of(_run(pod, container, layout, previous=options.flag(query, "previous")), query)


def options_of(folder: Path, query: Mapping[str, str]) -> PodLogOptions:
    """Return the options of a request for the log of a run in a folder.

    Raise StatusError (BadRequest) if an option is invalid.
    """
    return PodLogOptions(
        folder=folder,
        follow=options.flag(query, "follow"),
        tail=_number(query, "tailLines"),
        most=_number(query, "limitBytes"),
        since=_since(query),
        stamped=options.flag(query, "timestamps"),
        positions=options.flag(query, "positions"),
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
        return timestamps.parse_seconds(query["sinceTime"])
    except (ValueError, OverflowError):  # OverflowError: a time before the year 1 or after the year 9999 in UTC
        raise bad_request(f"sinceTime: {query['sinceTime']!r} is no time in RFC 3339") from None


def _number(query: Mapping[str, str], name: str) -> int | None:
    if name not in query:
        return None
    value = go_integers.query_integer(name, query[name])
    if value < 0:
        raise bad_request(f"{name}: must not be negative")
    return value


def _container(pod: Manifest, name: str) -> str:
    spec = pod["spec"]
    names: list[str] = [c["name"] for field in ("containers", "initContainers") for c in spec.get(field) or ()]
    if name and name not in names:
        raise bad_request(f"container {name} is not valid for pod {pod['metadata']['name']}: choose one of {names}")
    return name or names[0]


def _run(pod: Manifest, container: str, layout: Layout, *, previous: bool) -> Path:
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    status = pod.get("status") or {}
    statuses = (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ()))
    restarts = next((int(each.get("restartCount") or 0) for each in statuses if each.get("name") == container), 0)
    restart = restarts - 1 if previous else restarts
    folder = layout.container(uid, container, restart)
    if previous and restart < 0:
        raise bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
    if log_files.files(folder):
        return folder
    # The status counts the next run before it starts. Until then, the log is the log of the last run.
    earlier = layout.container(uid, container, restart - 1)
    if not previous and restart > 0 and log_files.files(earlier):
        return earlier
    if (folder / "started").exists():
        raise bad_request(
            f'the log of this run of container "{container}" in pod "{name}" was removed to make room for later output'
        )
    raise bad_request(f'container "{container}" in pod "{name}" is waiting to start')


def start(log_options: PodLogOptions) -> int:
    """Return the position from which a log is sent. Raise FileNotFoundError if the log was deleted."""
    position = 0 if log_options.tail is None else log_files.tail_start(log_options.folder, log_options.tail)
    if log_options.since is None:
        return position
    earliest = LogTimes(log_options.folder).start(log_options.since)
    if earliest is None:
        return log_files.span(log_options.folder)[1]
    return max(position, log_files.line_start(log_options.folder, earliest))


async def serve(request: web.BaseRequest, log_options: PodLogOptions) -> web.StreamResponse:
    """Send the log. The file stays open: it may be deleted, with its pod, while a client follows the log."""
    try:
        position = start(log_options)
        first = log_files.span(log_options.folder)[0]
    except FileNotFoundError:
        raise bad_request("the log no longer exists: the pod was removed from its node") from None
    reader = LogReader(log_options.folder, 0 if position <= first else position)
    try:
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await _send(request, response, reader, log_options)
    finally:
        reader.close()
    return response


async def _send(
    request: web.BaseRequest, response: web.StreamResponse, reader: LogReader, log_options: PodLogOptions
) -> None:
    remaining = log_options.most
    lines = _Lines(reader, log_options)
    exited, text = _is_over(log_options.folder), lines.read()  # before the first await: the pod may go meanwhile
    await response.prepare(request)
    while True:
        while text:
            allowed = text if remaining is None else text[:remaining]
            await response.write(allowed)
            remaining = None if remaining is None else remaining - len(allowed)
            if remaining == 0:
                return
            text = lines.read()
        if exited or not log_options.follow or remaining == 0:
            return
        await asyncio.sleep(_POLL_SECONDS)
        exited, text = _is_over(log_options.folder), lines.read()


class _Lines:
    """The text to send of a log, with timestamps and with lines that mark removed output."""

    def __init__(self, reader: LogReader, log_options: PodLogOptions) -> None:
        self._reader = reader
        times = LogTimes(log_options.folder) if log_options.stamped else None
        stamper = Stamper(times, positions=log_options.positions)
        plain = not (log_options.stamped or log_options.positions)
        self._stamp: Callable[[bytes, int], bytes] = (lambda text, _: text) if plain else stamper.stamp_lines
        self._bound = "" if log_options.positions else log_options.bound
        self._line_is_open = False

    def read(self) -> bytes:
        """Return the next text; nothing at the present end of the log."""
        before = self._reader.position
        piece = self._reader.read()
        if not piece:
            return b""
        begin = self._reader.position - len(piece)
        text = self._stamp(piece, begin) if begin == before else self._after_gap(piece, begin, begin - before)
        self._line_is_open = not piece.endswith(b"\n")
        return text

    def _after_gap(self, piece: bytes, begin: int, count: int) -> bytes:
        end = "\n" if self._line_is_open else ""
        mark = f"[torchq: {count} bytes of older output were removed: see {self._bound}]\n" if self._bound else ""
        removed = self._stamp(f"{end}{mark}".encode(), begin)
        return removed + self._stamp(piece, begin)


def _is_over(folder: Path) -> bool:
    # The caller tests this before its last read, so that it reads all output. A deleted folder means an exit, too.
    return (folder / "exited").exists() or not folder.exists()
