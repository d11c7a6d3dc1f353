"""Both clients behind one interface, so that one contract suite runs over both.

One rule: a test writes a call once, as in `caller.do(lambda client: client.jobs())`.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torchq
import torchq.aio
from tests.support.waiting import patient

SECONDS = 60.0


class Caller(Protocol):
    """A client under test."""

    def do(self, call: Callable[[Any], Any]) -> Any:
        """Make a call with the client, and return its answer."""

    def items(self, call: Callable[[Any], Any]) -> Iterator[Any]:
        """Return the items of a stream; to close the generator closes the stream."""

    def close(self) -> None:
        """End the client."""


class Threads:
    """The client of threads."""

    def __init__(self, **options: Any) -> None:
        self.client = torchq.Client(**options)

    def do(self, call: Callable[[Any], Any]) -> Any:
        return call(self.client)

    def items(self, call: Callable[[Any], Any]) -> Iterator[Any]:
        yield from call(self.client)

    def close(self) -> None:
        self.client.close()


class Tasks:
    """The client of asyncio, whose event loop runs on a thread."""

    def __init__(self, **options: Any) -> None:
        self.client = torchq.aio.Client(**options)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def do(self, call: Callable[[Any], Any]) -> Any:
        async def made() -> Any:
            return await call(self.client)

        return self.run(made())

    def items(self, call: Callable[[Any], Any]) -> Iterator[Any]:
        async def begun() -> Any:
            return call(self.client)

        items = self.run(begun())
        try:
            while True:
                try:
                    yield self.run(items.__anext__())
                except StopAsyncIteration:
                    return
        finally:
            self.run(items.aclose())

    def run(self, awaited: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(awaited, self.loop).result(patient(SECONDS))

    def close(self) -> None:
        self.run(self.client.close())
        self.run(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(patient(SECONDS))
        self.loop.close()


CALLERS = {"threads": Threads, "asyncio": Tasks}
