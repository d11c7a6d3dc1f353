"""The streams of changes: what a page that is open is told, and how many pages may be open.

One rule: a stream knows what its browser has, and compares that with the page as it is now. A slow reader is passed
over until the reader has taken what was sent: so it gets the newest only, and nothing waits for it.
"""

import asyncio
import contextlib
import logging
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import orjson

from coordinator.dashboard.changes import Versions
from coordinator.dashboard.made_pages import MadePage, UnreadableAddress
from coordinator.dashboard.readings import FAILURES, Readings
from coordinator.dashboard.visitors import Lookers, Visitor
from coordinator.query.bounds import Bounds
from kube import errors
from kube.process.turns import Turn

MOST_STREAMS = 1000
MOST_OF_ONE_VISITOR = 64
LONGEST_TICK = 2.0
"""How long streams wait at most for the next reading."""
HEARTBEAT_SECONDS = 10.0
"""How often a stream without changes says that it lives."""
WRITE_SECONDS = 15.0
"""How long a reader may take for a message; the stream of a slower one ends, and the page comes back for the rest."""
MOST_SHOWN = 10_000
"""The most elements that a page may say it shows."""
END = b"event: end\ndata:\n\n"
"""Lets a page load itself again, and then say why it is not there."""
FULL = b"event: full\ndata:\n\n"
"""Lets a page say that too many pages are open, and stay still."""
ALIVE = b": alive\n\n"
Make = Callable[[Lookers, str], Awaitable[MadePage | None]]
_Key = tuple[Lookers, str]
log = logging.getLogger(__name__)


class Outlet(Protocol):
    """The way to a reader."""

    def is_free(self) -> bool:
        """Return whether the reader has taken all that was sent."""

    def send(self, text: bytes) -> None:
        """Send a text, without waiting."""


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """What a page says that wants to know changes."""

    address: str
    shown: Versions
    is_once: bool = False
    """Whether the answer ends with the present changes: something on the way holds streams back until they end."""


def read_request(body: bytes) -> StreamRequest:
    """Return what a page says. Raises ValueError."""
    try:
        asked = orjson.loads(body)
        shown = {str(name): [(str(i), str(v)) for i, v in each] for name, each in asked["shown"].items()}
        found = StreamRequest(str(asked["page"]), shown, asked.get("once") is True)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("the body does not say which page is open") from error
    if sum(map(len, shown.values())) > MOST_SHOWN:
        raise ValueError("the page shows too much")
    return found


@dataclass(slots=True, eq=False)
class _Stream:
    """A page that is open."""

    visitor: Visitor
    address: str
    outlet: Outlet
    is_there: Callable[[], bool]
    shown: MadePage | Versions
    sent_at: float
    ended: asyncio.Future[bool]
    """Is done at the end; False for a reader that is too slow."""
    is_once: bool
    """Whether the stream ends with the present changes."""
    is_waiting: bool = False
    """Whether the page is being made."""

    def end(self, text: bytes = b"", *, in_time: bool = True) -> None:
        """End the stream, with a last message."""
        if not self.ended.done():
            if text:
                self.outlet.send(text)
            self.ended.set_result(in_time)

    def tell(self, made: MadePage | None, now: float) -> None:
        """Tell the reader what differs in a page, or that the stream lives."""
        if not self.outlet.is_free():
            if now - self.sent_at >= WRITE_SECONDS:
                self.end(in_time=False)
            return
        message = b""
        if made is not None:
            message, self.shown = made.message(self.shown), made
        if not message and now - self.sent_at > HEARTBEAT_SECONDS:
            message = ALIVE
        if message:
            self.outlet.send(message)
            self.sent_at = now


@dataclass(slots=True, eq=False)
class _Making:
    """A page that is made, or was, since the last reading."""

    task: asyncio.Task[MadePage | None]
    is_for_all: bool
    """Whether several visitors are shown the page."""
    is_wanted: bool = False
    """Whether a stream has compared the page."""


class Streams:
    """The streams of all visitors, on one event loop. One task goes through all of them: waking a task for each costs
    more than the comparison."""

    def __init__(
        self, readings: Readings, make: Make, lookers: Callable[[Visitor, str], Lookers], turn: Turn | None = None
    ) -> None:
        """`make` returns a page. `lookers` returns for whom the page of a visitor is made; it waits for nothing. `turn`
        is the event loop, as probes look at it."""
        self._readings, self._make, self._lookers, self._turn = readings, make, lookers, turn
        self._of_visitor: Counter[Visitor] = Counter()
        self._open: dict[_Stream, None] = {}
        self._news = asyncio.Event()
        self._making: dict[_Key, _Making] = {}
        self._ticker: asyncio.Task[None] | None = None
        self.stopping = False

    def __len__(self) -> int:
        return len(self._open)

    def start(self) -> None:
        """Let each reading of the cluster reach the streams."""
        loop = asyncio.get_running_loop()

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._news.set)

        self._readings.on_reading = tell
        self._ticker = asyncio.create_task(self._tick())

    async def stop(self) -> None:
        """End all streams. Their pages come back to another process, and are told nothing."""
        self.stopping = True
        for stream in [*self._open]:
            stream.end()
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)

    async def _tick(self) -> None:
        while True:
            if self._turn is not None:
                self._turn.mark()
            with contextlib.suppress(TimeoutError):
                # Python 3.11's wait_for forgets that it was cancelled if a reading comes at this moment.
                async with asyncio.timeout(LONGEST_TICK):
                    await self._news.wait()
            self._news.clear()
            before = self._making
            self._making = {key: each for key, each in before.items() if not each.task.done()}
            await self._make_shared([key for key, each in before.items() if each.is_for_all and each.is_wanted])
            now = asyncio.get_running_loop().time()
            for stream in [*self._open]:
                self._compare(stream, now)

    async def _make_shared(self, wanted: Collection[_Key]) -> None:
        """Make the pages for several visitors first: so their streams need not wait one by one."""
        if wanted:
            await asyncio.wait({self._made(key).task for key in wanted}, timeout=LONGEST_TICK)

    async def follow(
        self, visitor: Visitor, asked: StreamRequest, outlet: Outlet, is_there: Callable[[], bool]
    ) -> bool:
        """Tell a page each change until it is closed, or its visitor may not see it any more. Return False for a
        reader that is too slow. `is_there` returns whether the page is open and its visitor logged in."""
        if self.stopping:
            return True
        if len(self) >= MOST_STREAMS or self._of_visitor[visitor] >= MOST_OF_ONE_VISITOR:
            outlet.send(FULL)
            return True
        loop = asyncio.get_running_loop()
        address = sys.intern(asked.address)  # one text for all who look at the page
        stream = _Stream(
            visitor, address, outlet, is_there, asked.shown, loop.time(), loop.create_future(), asked.is_once
        )
        self._of_visitor[visitor] += 1
        self._open[stream] = None
        try:
            self._compare(stream, loop.time())
            return await stream.ended
        finally:
            del self._open[stream]
            self._of_visitor[visitor] -= 1
            self._of_visitor += Counter()  # forgets visitors without streams

    def _compare(self, stream: _Stream, now: float) -> None:
        """Compare what a stream has shown with the page as it is now, once this is made."""
        if stream.is_waiting or stream.ended.done():
            return
        try:
            if not stream.is_there():
                return stream.end(END)
            key = self._lookers(stream.visitor, stream.address), stream.address
        except Exception as error:
            return stream.ended.set_exception(error)
        making = self._making.get(key) or self._made(key)
        making.is_wanted = True
        if making.task.done():
            self._show(stream, making.task, now)
        else:
            stream.is_waiting = True
            making.task.add_done_callback(partial(self._show_later, stream))

    def _made(self, key: _Key) -> _Making:
        """Return the page as it is now, made once for all streams that show it to the same lookers."""
        found = self._making.get(key)
        if found is None:
            found = self._making[key] = _Making(asyncio.ensure_future(self._make(*key)), isinstance(key[0], Bounds))
        return found

    def _show_later(self, stream: _Stream, task: asyncio.Task[MadePage | None]) -> None:
        stream.is_waiting = False
        if not stream.ended.done():
            self._show(stream, task, task.get_loop().time())

    def _show(self, stream: _Stream, task: asyncio.Task[MadePage | None], now: float) -> None:
        if task.cancelled():
            return
        try:
            made = task.result()
            if made is None:
                stream.end(END)
            else:
                stream.tell(made, now)
        except (errors.Unauthorized, UnreadableAddress):
            stream.end(END)
        except FAILURES as error:
            log.debug("a page is not compared now: %s", error)
            stream.tell(None, now)
        except Exception as error:
            stream.ended.set_exception(error)
        if stream.is_once:
            stream.end()
