"""Watches: the changes of a resource, line by line, for every client that watches it.

One rule: a watch never delays a write. A reader that is too slow is disconnected, and may resume where it was. The
events that wait for a reader are the stored objects themselves, which all watches share: a thousand slow readers cost
no more memory than one.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import orjson
from aiohttp import web

from embedded.apiserver.kinds.catalog import Kind
from embedded.apiserver.status_errors import StatusError
from embedded.apiserver.storage.journal import Change, Journal
from embedded.apiserver.storage.object_store import Store
from embedded.apiserver.storage.objects import StoredObject, seal
from embedded.apiserver.wire import go_integers, options, request_target
from embedded.apiserver.wire.encoding import Encoder
from embedded.apiserver.wire.selectors import Selector

BOOKMARK_SECONDS = 10.0
REST_SECONDS = 0.005
"""The pause after each send; the changes of the pause are sent together. A busy client then wakes up less often, and a
change after a quiet moment is still sent at once."""
_LONGEST_SECONDS = 1800
_MOST_BYTES = 64 * 1024 * 1024
"""The most bytes that may wait for a slow reader."""
_PIECE = 64 * 1024
"""The bytes that are passed to a connection at once."""


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """The options of a watch, with its kind and its selector."""

    kind: Kind
    namespace: str
    selector: Selector
    since: int
    """The resourceVersion after which the watch begins; with 0, it begins with the existing objects."""
    initial: bool | None
    """Whether the existing objects are sent first, followed by a bookmark. If None, `since` decides."""
    bookmarks: bool
    seconds: int


def parse(kind: Kind, namespace: str, query: Mapping[str, str]) -> WatchRequest:
    """Return the request of a watch from its query. Raise StatusError (BadRequest, Invalid) if the request is wrong."""
    list_options = options.list_options(query, watching=True)
    selector = request_target.selector(query, kind)  # its errors come before those of the version
    since = go_integers.resource_version(list_options.version or "0")
    return WatchRequest(
        kind=kind,
        namespace=namespace,
        selector=selector,
        since=0 if list_options.initial else since,
        initial=list_options.initial,
        bookmarks=list_options.bookmarks,
        seconds=max(1, min(list_options.seconds or _LONGEST_SECONDS, _LONGEST_SECONDS)),
    )


Event = tuple[str, StoredObject]
"""An event: its kind and its object."""


def line(event: str, raw: bytes) -> bytes:
    """Return one line of a watch."""
    return b"".join(_parts(event, raw))


def _parts(event: str, raw: bytes) -> Iterator[bytes]:
    """Yield a line in parts that are no longer than one piece."""
    yield b'{"type":"' + event.encode() + b'","object":'
    for start in range(0, len(raw), _PIECE):
        yield raw[start : start + _PIECE]
    yield b"}\n"


def translate(change: Change, watch_request: WatchRequest) -> Event | None:
    """Return the event of a change for a watch that selects only some objects; None for no event."""
    stored = change.object
    if watch_request.namespace and stored.namespace != watch_request.namespace:
        return None
    if not watch_request.selector:
        return change.kind, stored
    before = change.before is not None and watch_request.selector.matches(change.before)
    after = change.kind != "DELETED" and watch_request.selector.matches(stored)
    match before, after:
        case True, True:
            return "MODIFIED", stored
        case False, True:
            return "ADDED", stored
        case True, False if change.before is not None and change.kind != "DELETED":
            # The client knows the object in its last matching state.
            return "DELETED", seal(change.before.manifest(), stored.version)
        case True, False:
            return "DELETED", stored
    return None


class WatchServer:
    """One open watch, with the events that wait for its reader."""

    def __init__(
        self, watch_request: WatchRequest, store: Store, disconnect: Callable[[], None], encoder: Encoder
    ) -> None:
        self._request = watch_request
        self._encoder = encoder
        self._disconnect = disconnect
        self._store = store
        self._journal: Journal = store.journal(watch_request.kind.storage)
        self.waiting: deque[Event] = deque()
        """The events that wait for the reader."""
        self._size = self._most = 0
        self._awake = asyncio.Event()
        self.ended = False

    def begin(self) -> None:
        """Queue the events that the reader has missed, then subscribe to new ones.

        Raise StatusError (Expired) if some are forgotten.
        """
        watch_request = self._request
        if watch_request.since:
            changes = self._journal.since(watch_request.since, self._store.revision)
            self.waiting.extend(filter(None, (translate(change, watch_request) for change in changes)))
        elif watch_request.initial is not False:
            present = self._store.items(watch_request.kind.storage, watch_request.namespace)
            self.waiting.extend(("ADDED", item) for item in present if watch_request.selector.matches(item))
        self._awake.set()
        self._size = sum(len(stored.raw) for _, stored in self.waiting)
        self._most = self._size + _MOST_BYTES
        self._journal.subscribe(self._on_change)

    def _on_change(self, change: Change) -> None:
        event = translate(change, self._request)
        if event is None or self.ended:
            return
        self.waiting.append(event)
        self._size += len(event[1].raw)
        self._awake.set()
        if self._size > self._most:
            self.ended = True
            self.waiting.clear()
            self._disconnect()

    def bookmark(self, *, initial: bool = False) -> bytes:
        """Return a bookmark: all changes up to its version were sent, or with `initial`, all existing objects."""
        resource = self._request.kind.resource
        meta: dict[str, object] = {"resourceVersion": str(self._store.published), "creationTimestamp": None}
        if initial:
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        body = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}
        return line("BOOKMARK", self._encoder.event(orjson.dumps(body)))

    async def wait(self, seconds: float) -> None:
        """Wait until an event waits for the reader, for some seconds at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._awake.wait()

    def pieces(self) -> Iterator[bytes]:
        """Yield the waiting events in pieces, to be written in their order."""
        self._awake.clear()
        piece: list[bytes] = []
        length = 0
        for part in self._encoded():
            piece.append(part)
            length += len(part)
            if length >= _PIECE:
                yield b"".join(piece)
                piece, length = [], 0
        if piece:
            yield b"".join(piece)

    def _encoded(self) -> Iterator[bytes]:
        while self.waiting:
            kind, stored = self.waiting.popleft()
            self._size -= len(stored.raw)
            yield from _parts(kind, self._encoder.event(stored.raw))

    def end(self) -> None:
        """Unsubscribe, and let the reader finish."""
        self._journal.unsubscribe(self._on_change)
        self.ended = True
        self._awake.set()


async def serve(
    request: web.BaseRequest,
    watch_request: WatchRequest,
    store: Store,
    open_watches: set[WatchServer],
    encoder: Encoder,
) -> web.StreamResponse:
    """Answer a watch until its time is over, its reader disconnects, or the server stops."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    watch = WatchServer(watch_request, store, lambda: request.transport.abort() if request.transport else None, encoder)
    try:
        store.flush()  # an object that is sent as existing must not be sent again as new
        watch.begin()
        open_watches.add(watch)
        await response.prepare(request)
        await _send_events(watch, watch_request, response)
    except ConnectionError:
        pass  # the reader disconnected during a write
    except StatusError as refusal:
        await response.prepare(request)
        await response.write(line("ERROR", orjson.dumps(refusal.status())))
    finally:
        watch.end()
        open_watches.discard(watch)
    return response


async def _send_events(watch: WatchServer, watch_request: WatchRequest, response: web.StreamResponse) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + watch_request.seconds
    bookmark_at = loop.time() + BOOKMARK_SECONDS
    is_initial_sent = not (watch_request.initial and watch_request.bookmarks)
    while not watch.ended and loop.time() < deadline:
        await watch.wait(min(deadline, bookmark_at) - loop.time())
        for piece in watch.pieces():
            await response.write(piece)
        if not watch.ended:
            await asyncio.sleep(REST_SECONDS)
        if watch.waiting or watch.ended:
            continue
        if not is_initial_sent:
            is_initial_sent = True
            await response.write(watch.bookmark(initial=True))
        if loop.time() >= bookmark_at or loop.time() >= deadline:
            bookmark_at = loop.time() + BOOKMARK_SECONDS
            if watch_request.bookmarks:
                await response.write(watch.bookmark())
