"""Stop signals of a process: every process of torchq ends by these signals, and no process ends by accident.

One rule: the handler only sets a plain flag and wakes the process, because it may interrupt code that holds a lock. The
first SIGTERM or SIGINT asks for a drain. A signal that comes more than a second later ends the process at once (Ctrl-C
may arrive twice). A process that ends the work of other processes needs its time and ignores repeated signals
(`PatientStop`).
"""

import contextlib
import logging
import math
import os
import select
import signal
import time
from collections.abc import Sequence
from concurrent.futures import Future, wait
from types import FrameType

_SECOND_SIGNAL_SECONDS = 1.0
_DRAIN_PAUSE_SECONDS = 0.1
"""How soon a process that drains notices a second signal."""
log = logging.getLogger(__name__)

HURRY = signal.SIGUSR2
"""The signal that asks a process to end its remaining work at once."""


class StopFlag:
    """A flag that tells a process to end; a signal handler or the process itself sets it."""

    signals: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGINT)

    def __init__(self) -> None:
        self.requested = False
        self._awakened, self._wake = os.pipe()
        """The ends of a pipe that is written to for each signal. It is never closed: a signal may come at any time."""
        os.set_blocking(self._awakened, False)
        os.set_blocking(self._wake, False)

    def listen(self) -> None:
        """Handle the signals of this process from now on."""
        # A signal may reach another thread, and then ends no wait of the main thread. Bytes in a pipe wake the process.
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for number in self.signals:
            signal.signal(number, self._on_signal)

    def __call__(self) -> bool:
        return self.requested

    def request(self) -> None:
        """Ask the process to end, from within the process."""
        self.requested = True
        with contextlib.suppress(BlockingIOError):  # a full pipe ends the wait, too
            os.write(self._wake, b"\0")

    def wait(self) -> None:
        """Sleep until the process is asked to end."""
        self.pause(math.inf)

    def pause(self, seconds: float) -> None:
        """Sleep for some seconds, or until the process is asked to end."""
        waits = select.poll()
        waits.register(self._awakened, select.POLLIN)
        end = time.monotonic() + seconds
        while not self.requested and (left := end - time.monotonic()) > 0:
            waits.poll(None if left == math.inf else math.ceil(left * 1000))
            if not self.requested:  # it was another signal
                self._empty_pipe()

    def _empty_pipe(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._awakened, 1024):
                pass

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        raise NotImplementedError


class Stop(StopFlag):
    """The stop flag of a process that a second signal ends at once."""

    def __init__(self) -> None:
        super().__init__()
        self.signal = 0
        """The signal that asked for the stop; 0 before the first one."""
        self._at = 0.0

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.requested and now - self._at > _SECOND_SIGNAL_SECONDS:
            raise SystemExit(128 + number)
        if not self.requested:
            self.signal, self._at = number, now
            self.request()


class PatientStop(StopFlag):
    """The stop flag of a process that ends the work of other processes.

    A repeated signal does not hurry it, since the end of a session or of the machine sends several; only `HURRY` does.
    """

    def __init__(self, leave: signal.Signals) -> None:
        super().__init__()
        self.signals = (signal.SIGTERM, signal.SIGINT, HURRY, leave)
        self._leave = leave
        self.leaves = False
        """Whether the work is to run on without the process."""
        self.hurried = False
        """Whether the remaining work is to end at once."""
        self.repeated = 0
        """The number of times that SIGTERM or SIGINT came again."""

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number == self._leave:
            self.leaves = True
        elif number == HURRY:
            self.hurried = True
        elif self.requested:
            self.repeated += 1
        self.request()


def drain(futures: Sequence[Future[None]], seconds: float) -> None:
    """Wait until all threads have ended. After `seconds`, or at a second signal, end the process without them: a thread
    that hangs would keep it from ending."""
    deadline = time.monotonic() + seconds
    try:
        while wait(futures, _DRAIN_PAUSE_SECONDS).not_done:
            if time.monotonic() >= deadline:
                log.error("a thread hangs %.0f s after the stop signal: the process ends without it", seconds)
                os._exit(1)
    except SystemExit as second:
        os._exit(second.code if isinstance(second.code, int) else 1)
