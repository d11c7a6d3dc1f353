"""Watches: what changed, line by line, to everybody who asked.

One rule: a watch never holds a write up. Whoever reads too slowly is cut off and may resume where it was. What waits
for a reader is the stored objects themselves, which all watches share: a thousand slow readers cost no more than one.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import orjson
from aiohttp import web

from embedded.apiserver.kinds.catalog import Kind
from embedded.apiserver.status_errors import Refusal
from embedded.apiserver.storage.journal import Change, Journal
from embedded.apiserver.storage.objects import Stored, seal
from embedded.apiserver.storage.store import Store
from embedded.apiserver.wire import integers, options, request
from embedded.apiserver.wire.encoding import Shown
from embedded.apiserver.wire.selectors import Selector

BOOKMARK_SECONDS = 10.0
REST_SECONDS = 0.005
"""How long nothing is sent after something was: what happens meanwhile is sent together. Whoever is busy with many
changes has few lines to wake up for; a change after a quiet moment is told at once."""
_LONGEST_SECONDS = 1800
_MOST_BYTES = 64 * 1024 * 1024
"""What may wait for a slow reader."""
_PIECE = 64 * 1024
"""Bytes handed to a connection at once."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a watch asked for."""

    kind: Kind
    namespace: str
    selector: Selector
    since: int
    """A resourceVersion; 0: begin with what is there."""
    initial: bool | None
    """Whether what is there is told first, and its end by a bookmark; None: as the resourceVersion says."""
    bookmarks: bool
    seconds: int


def wish(kind: Kind, namespace: str, query: Mapping[str, str]) -> Wish:
    """Read a watch request."""
    asked = options.listing(query, watching=True)
    chosen = request.selector(query, kind)
    since = integers.version(asked.version or "0")
    return Wish(
        kind=kind,
        namespace=namespace,
        selector=chosen,
        since=0 if asked.initial else since,
        initial=asked.initial,
        bookmarks=asked.bookmarks,
        seconds=max(1, min(asked.seconds or _LONGEST_SECONDS, _LONGEST_SECONDS)),
    )


Told = tuple[str, Stored]
"""An event: its kind and its object."""


def line(event: str, raw: bytes) -> bytes:
    """One line of a watch."""
    return b"".join(_parts(event, raw))


def _parts(event: str, raw: bytes) -> Iterator[bytes]:
    """A line, in parts no longer than one piece."""
    yield b'{"type":"' + event.encode() + b'","object":'
    for start in range(0, len(raw), _PIECE):
        yield raw[start : start + _PIECE]
    yield b"}\n"


def translate(change: Change, wanted: Wish) -> Told | None:
    """What a change is for somebody who sees only part of the objects; None if it is nothing."""
    shown = change.object
    if wanted.namespace and shown.namespace != wanted.namespace:
        return None
    if not wanted.selector:
        return change.kind, shown
    before = change.before is not None and wanted.selector.matches(change.before)
    after = change.kind != "DELETED" and wanted.selector.matches(shown)
    match before, after:
        case True, True:
            return "MODIFIED", shown
        case False, True:
            return "ADDED", shown
        case True, False:
            return "DELETED", _last_seen(change)
        case _:
            return None


def _last_seen(change: Change) -> Stored:
    if change.before is None or change.kind == "DELETED":
        return change.object
    # The watcher knew the object as it was before it stopped matching.
    return seal(change.before.manifest(), change.object.version)


class Watch:
    """One watch under way: events wait here until its reader takes them."""

    def __init__(self, wanted: Wish, store: Store, cut: Callable[[], None], shown: Shown) -> None:
        self._wanted = wanted
        self._shown = shown
        self._cut = cut
        self._store = store
        self._journal: Journal = store.journal(wanted.kind.storage)
        self._waiting: deque[Told] = deque()
        self._size = self._most = 0
        self._awake = asyncio.Event()
        self.ended = False

    def begin(self) -> None:
        """Replay what the reader has missed and listen from here. Expired if too much is forgotten."""
        wanted = self._wanted
        if wanted.since:
            changes = self._journal.since(wanted.since, self._store.revision)
            self._waiting.extend(filter(None, (translate(change, wanted) for change in changes)))
        elif wanted.initial is not False:
            present = self._store.items(wanted.kind.storage, wanted.namespace)
            self._waiting.extend(("ADDED", item) for item in present if wanted.selector.matches(item))
        self._awake.set()
        self._size = sum(len(shown.raw) for _, shown in self._waiting)
        self._most = self._size + _MOST_BYTES
        self._journal.listen(self._hear)

    def _hear(self, change: Change) -> None:
        told = translate(change, self._wanted)
        if told is None or self.ended:
            return
        self._waiting.append(told)
        self._size += len(told[1].raw)
        self._awake.set()
        if self._size > self._most:
            self.ended = True
            self._waiting.clear()
            self._cut()

    def bookmark(self, *, initial: bool = False) -> bytes:
        """How far this watch has come: everything up to here has been sent, or, initially, all that was there."""
        resource = self._wanted.kind.resource
        own: dict[str, object] = {"resourceVersion": str(self._store.published), "creationTimestamp": None}
        if initial:
            own["annotations"] = {"k8s.io/initial-events-end": "true"}
        shown = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": own}
        return line("BOOKMARK", self._shown.event(orjson.dumps(shown)))

    @property
    def drained(self) -> bool:
        """Whether nothing waits for the reader."""
        return not self._waiting

    async def wait(self, seconds: float) -> None:
        """Until something waits for the reader, or a while has passed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._awake.wait()

    def pieces(self) -> Iterator[bytes]:
        """What waits, in pieces to be written one after the other."""
        self._awake.clear()
        piece: list[bytes] = []
        length = 0
        for part in self._taken():
            piece.append(part)
            length += len(part)
            if length >= _PIECE:
                yield b"".join(piece)
                piece, length = [], 0
        if piece:
            yield b"".join(piece)

    def _taken(self) -> Iterator[bytes]:
        while self._waiting:
            kind, shown = self._waiting.popleft()
            self._size -= len(shown.raw)
            yield from _parts(kind, self._shown.event(shown.raw))

    def end(self) -> None:
        """Listen no longer and let the reader finish."""
        self._journal.leave(self._hear)
        self.ended = True
        self._awake.set()


async def serve(
    request: web.BaseRequest, wanted: Wish, store: Store, under_way: set[Watch], shown: Shown
) -> web.StreamResponse:
    """Answer a watch until its time is over, its reader leaves, or the server stops."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    watch = Watch(wanted, store, lambda: request.transport.abort() if request.transport else None, shown)
    try:
        store.flush()  # what is shown as present must not be told again as news
        watch.begin()
        under_way.add(watch)
        await response.prepare(request)
        await _pump(watch, wanted, response)
    except ConnectionError:
        pass  # the reader left while something was on its way to it
    except Refusal as refusal:
        await response.prepare(request)
        await response.write(line("ERROR", orjson.dumps(refusal.status())))
    finally:
        watch.end()
        under_way.discard(watch)
    return response


async def _pump(watch: Watch, wanted: Wish, response: web.StreamResponse) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wanted.seconds
    bookmark_at = loop.time() + BOOKMARK_SECONDS
    begun = not (wanted.initial and wanted.bookmarks)
    while not watch.ended and loop.time() < deadline:
        await watch.wait(min(deadline, bookmark_at) - loop.time())
        for piece in watch.pieces():
            await response.write(piece)
        if not watch.ended:
            await asyncio.sleep(REST_SECONDS)
        if not watch.drained or watch.ended:
            continue
        if not begun:
            begun = True
            await response.write(watch.bookmark(initial=True))
        if loop.time() >= bookmark_at or loop.time() >= deadline:
            bookmark_at = loop.time() + BOOKMARK_SECONDS
            if wanted.bookmarks:
                await response.write(watch.bookmark())
