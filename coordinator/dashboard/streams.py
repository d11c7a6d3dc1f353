"""The streams of changes: what a page that is open is told, and how many pages may be open.

One rule: a stream knows what its browser has, and compares that with the page as it is now. So a slow reader gets the
newest only, and nothing waits for it.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import orjson

from coordinator.dashboard.changes import Versions
from coordinator.dashboard.made_pages import MadePage, UnreadableAddress
from coordinator.dashboard.readings import FAILURES, Readings
from coordinator.dashboard.visitors import Visitor
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
Write = Callable[[bytes], Awaitable[object]]
Make = Callable[[Visitor, str], Awaitable[MadePage | None]]
log = logging.getLogger(__name__)


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


class Streams:
    """The streams of all visitors, on one event loop."""

    def __init__(self, readings: Readings, make: Make, turn: Turn | None = None) -> None:
        """`make` returns a page; `turn` is the event loop, as probes look at it."""
        self._readings, self._make, self._turn = readings, make, turn
        self._of_visitor: Counter[Visitor] = Counter()
        self._ticks: asyncio.Event = asyncio.Event()
        self._news = asyncio.Event()
        self._making: dict[tuple[Visitor, str], asyncio.Task[MadePage | None]] = {}
        self._ticker: asyncio.Task[None] | None = None
        self.stopping = False

    def __len__(self) -> int:
        return self._of_visitor.total()

    def start(self) -> None:
        """Let each reading of the cluster reach the streams."""
        loop = asyncio.get_running_loop()

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._news.set)

        self._readings.on_reading = tell
        self._ticker = asyncio.create_task(self._tick())

    async def stop(self) -> None:
        """End all streams."""
        self.stopping = True
        self._ticks.set()
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)

    async def _tick(self) -> None:
        while True:
            if self._turn is not None:
                self._turn.mark()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), LONGEST_TICK)
            self._news.clear()
            self._making = {key: task for key, task in self._making.items() if not task.done()}
            ticks, self._ticks = self._ticks, asyncio.Event()
            ticks.set()

    async def follow(self, visitor: Visitor, asked: StreamRequest, write: Write, is_there: Callable[[], bool]) -> bool:
        """Tell a page each change until it is closed, or its visitor may not see it any more. Return False for a
        reader that is too slow. `is_there` returns whether the page is open and its visitor logged in."""
        if len(self) >= MOST_STREAMS or self._of_visitor[visitor] >= MOST_OF_ONE_VISITOR:
            await write(FULL)
            return True
        self._of_visitor[visitor] += 1
        try:
            await self._follow(visitor, asked, lambda text: asyncio.wait_for(write(text), WRITE_SECONDS), is_there)
        except TimeoutError:
            return False
        finally:
            self._of_visitor[visitor] -= 1
            self._of_visitor += Counter()  # forgets visitors without streams
        return True

    async def _follow(self, visitor: Visitor, asked: StreamRequest, write: Write, is_there: Callable[[], bool]) -> None:
        loop, heard = asyncio.get_running_loop(), 0.0
        shown: MadePage | Versions = asked.shown
        while not self.stopping and is_there():
            ticks = self._ticks
            try:
                made = await self._shared(visitor, asked.address)
            except (errors.Unauthorized, UnreadableAddress):
                break
            except FAILURES as error:
                log.debug("a page is not compared now: %s", error)
            else:
                if made is None:
                    break
                message = made.message(shown)
                if message:
                    await write(message)
                    heard = loop.time()
                shown = made
            if loop.time() - heard > HEARTBEAT_SECONDS:
                await write(ALIVE)
                heard = loop.time()
            if asked.is_once:
                return
            await ticks.wait()
        if not self.stopping:
            await write(END)

    async def _shared(self, visitor: Visitor, address: str) -> MadePage | None:
        """Return the page as it is now, made once for all tabs of a visitor that show the same page."""
        key = visitor, address
        task = self._making.get(key)
        if task is None:
            task = self._making[key] = asyncio.ensure_future(self._make(visitor, address))
        return await asyncio.shield(task)
