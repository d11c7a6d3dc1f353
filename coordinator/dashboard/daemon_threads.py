"""The threads in which the dashboard asks servers and draws pages.

One rule: the process does not wait for them at its end. A thread may hang for as long as a server lets it wait.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
_Work = tuple[Future[Any], Callable[[], Any]]


class DaemonThreads(Executor):
    """A pool of threads that do not keep the process from ending."""

    def __init__(self, count: int, name: str) -> None:
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._count = count
        for number in range(count):
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True).start()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Let a thread call a function."""
        future: Future[T] = Future()
        self._queue.put((future, lambda: fn(*args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """Let each thread end after the work that came before."""
        for _ in range(self._count):
            self._queue.put(None)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            future, call = work
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
