"""Fibers: code that can be paused between two of its calls and resumed later.

One rule: exactly one thread runs at any moment, and threads switch only where a schedule says so. The same schedule
therefore runs the same way every time.
"""

import threading
from collections.abc import Callable


class Killed(BaseException):
    """The simulated process of this code is dead. The product's code never catches this exception."""


class _Carrier:
    """A thread that runs one fiber after the other."""

    def __init__(self) -> None:
        self.wake = threading.Lock()
        self.back = threading.Lock()
        self.wake.acquire()
        self.back.acquire()
        self.work: Callable[[], None] = lambda: None
        threading.Thread(target=self._run, name="fiber", daemon=True).start()

    def _run(self) -> None:
        while True:
            self.wake.acquire()
            self.work()
            self.back.release()


_idle: list[_Carrier] = []


class Fiber:
    """A call that may block before its end."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._carrier = _idle.pop() if _idle else _Carrier()
        self._carrier.work = self._run
        self._error: BaseException | None = None
        self._killed = False
        self.done = False
        self.until: Callable[[], bool] = lambda: True
        """The condition under which a blocked fiber may continue."""

    def resume(self) -> bool:
        """Run the fiber until it blocks or ends, and return whether it has ended. Raises the error of the fiber, except
        Killed.
        """
        self._carrier.wake.release()
        self._carrier.back.acquire()
        if self.done:
            _idle.append(self._carrier)
            if self._error is not None and not isinstance(self._error, Killed):
                raise self._error
        return self.done

    def block(self, until: Callable[[], bool]) -> None:
        """Block the running fiber until the condition holds. Only this fiber may call the method."""
        self.until = until
        self._carrier.back.release()
        self._carrier.wake.acquire()
        if self._killed:
            raise Killed

    def kill(self) -> None:
        """End a blocked fiber at the point where it waits."""
        self._killed = True
        assert self.resume(), "a killed fiber continued"

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._error = error
        finally:
            self.done = True
