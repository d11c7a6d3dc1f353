"""How the clock of this machine differs from the clock of the API server.

One rule: only large differences have an effect. The server tells whole seconds, and its answer takes a while.
"""

import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

MOST_SECONDS = 120.0
"""The largest difference that is no reason to act."""
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _steady() -> float:
    """Return seconds of a clock that is never set and that runs while the machine sleeps (on Linux)."""
    return time.clock_gettime(_CLOCK)


class ServerTime:
    """The time of an API server, by its last answer. Any thread may use the object."""

    def __init__(self, clock: Callable[[], float] = time.time, steady: Callable[[], float] = _steady) -> None:
        """`clock` is the clock of the machine, which may be set; `steady` is never set."""
        self._clock = clock
        self._steady = steady
        self._noted: tuple[str, float] | None = None
        """The Date of the last answer, and when it came."""

    def note(self, date: str | None) -> None:
        """Record the header Date of an answer that came just now."""
        if date:
            self._noted = date, self._steady()

    def ahead(self) -> float:
        """Return by how many seconds the clock of this machine is ahead of the server's, negative if it is behind; 0
        if the server has told no time."""
        noted = self._noted
        try:
            told = parsedate_to_datetime(noted[0]).timestamp() if noted else None
        except ValueError:
            told = None
        return 0.0 if told is None or noted is None else self._clock() - (told + self._steady() - noted[1])

    def now(self) -> float:
        """Return the time, in seconds since 1970: that of this machine's clock, or of the server's if they differ
        much."""
        ahead = self.ahead()
        return self._clock() - (ahead if is_large(ahead) else 0.0)

    def problem(self) -> str:
        """Return that the clock of this machine is wrong, by the server's; empty if the difference is small."""
        ahead = self.ahead()
        return f"the clock of this machine is {describe(ahead)} that of the API server" if is_large(ahead) else ""


def is_large(ahead: float) -> bool:
    """Return whether a difference is a reason to act."""
    return abs(ahead) > MOST_SECONDS


def describe(ahead: float) -> str:
    """Return a large difference in words, as in "3.0 h ahead of"."""
    size = abs(ahead)
    amount = f"{size / 3600:.1f} h" if size >= 3600 else f"{size / 60:.0f} min"
    return f"{amount} {'ahead of' if ahead > 0 else 'behind'}"
