"""Stop signals of a process: every process of torchq ends by them, and none by accident.

One rule: the handler only sets a plain flag, because it may interrupt code that holds a lock. The first SIGTERM or
SIGINT asks for a drain; one that comes more than a second later ends the process at once (Ctrl-C may arrive twice),
unless the process ends the work of others, which needs its time (`PatientStop`).
"""

import signal
import time
from types import FrameType

_SECOND_SIGNAL_SECONDS = 1.0
_NAP_SECONDS = 0.05


class Stop:
    """Whether the process was told to end."""

    def __init__(self) -> None:
        self.requested = False
        self.signal = 0
        """The signal that asked; 0 while none has."""
        self._at = 0.0

    def listen(self) -> None:
        """Take over the process's signals."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def __call__(self) -> bool:
        return self.requested

    def request(self) -> None:
        """The process itself finds that it should end."""
        self.requested = True

    def wait(self) -> None:
        """Sleep until told to end."""
        while not self.requested:
            time.sleep(_NAP_SECONDS)

    def pause(self, seconds: float) -> None:
        """Sleep, but not into a stop."""
        end = time.monotonic() + seconds
        while not self.requested and time.monotonic() < end:
            time.sleep(_NAP_SECONDS)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.requested and now - self._at > _SECOND_SIGNAL_SECONDS:
            raise SystemExit(128 + number)
        if not self.requested:
            self.requested, self.signal, self._at = True, number, now


HURRY = signal.SIGUSR2
"""What is left is to be ended at once."""


class PatientStop:
    """Whether a process that ends others' work is to end, and how. No signal that comes again hurries it, since the end
    of a session or of the machine sends several; only `HURRY` does."""

    def __init__(self, leave: signal.Signals) -> None:
        self._leave = leave
        self.requested = False
        self.leaves = False
        """Whether the work is to run on without the process."""
        self.hurried = False
        self.repeated = 0
        """How often SIGTERM or SIGINT came again."""

    def listen(self) -> None:
        """Take over the process's signals."""
        for number in {signal.SIGTERM, signal.SIGINT, HURRY, self._leave}:
            signal.signal(number, self._on_signal)

    def __call__(self) -> bool:
        return self.requested

    def request(self) -> None:
        """The process itself finds that it should end."""
        self.requested = True

    def wait(self) -> None:
        """Sleep until told to end."""
        while not self.requested:
            time.sleep(_NAP_SECONDS)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number == self._leave:
            self.leaves = True
        elif number == HURRY:
            self.hurried = True
        elif self.requested:
            self.repeated += 1
        self.requested = True
