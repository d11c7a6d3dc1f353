"""Code that can be stopped between two of its calls and go on later, one at a time.

One rule: exactly one thread runs at any moment; the baton changes hands only where a schedule says so, so that the same
schedule runs the same way every time.
"""

import threading
from collections.abc import Callable


class Killed(BaseException):
    """The process that was running this is dead. Nothing of ours catches it."""


class _Carrier:
    """A thread that carries one fiber after the other."""

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
    """One call that may block in the middle."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._carrier = _idle.pop() if _idle else _Carrier()
        self._carrier.work = self._run
        self._error: BaseException | None = None
        self._killed = False
        self.done = False
        self.until: Callable[[], bool] = lambda: True
        """When it may go on, while it is blocked."""

    def resume(self) -> bool:
        """Run it until it blocks or ends; whether it has ended. What it raised goes up, but for Killed."""
        self._carrier.wake.release()
        self._carrier.back.acquire()
        if self.done:
            _idle.append(self._carrier)
            if self._error is not None and not isinstance(self._error, Killed):
                raise self._error
        return self.done

    def block(self, until: Callable[[], bool]) -> None:
        """From inside: let others run until the condition holds."""
        self.until = until
        self._carrier.back.release()
        self._carrier.wake.acquire()
        if self._killed:
            raise Killed

    def kill(self) -> None:
        """End a blocked one where it stands."""
        self._killed = True
        assert self.resume(), "a killed fiber went on"

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._error = error
        finally:
            self.done = True
