"""Waiting for the effect of another thread, another process or a server.

One rule: a test waits for a condition and never for time to pass. The deadline grows with the load of the machine; a
correct program never reaches it.
"""

import os
import time
from collections.abc import Callable
from typing import Any

SECONDS = 60.0
PAUSE_SECONDS = 0.01
SLOWEST = 10.0
"""The largest factor, so that no test waits for ever."""


def slowness() -> float:
    """Return how many tasks wait for each processor of this machine, from 1 to SLOWEST. A task takes longer by this
    factor.
    """
    return min(max(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0), SLOWEST)


def patient(seconds: float = SECONDS) -> float:
    """Return the deadline for an action that takes at most `seconds` on an otherwise idle machine."""
    return seconds * slowness()


def until(
    look: Callable[[], Any],
    true: Callable[[Any], Any] = bool,
    seconds: float = SECONDS,
    *,
    pause: float = PAUSE_SECONDS,
) -> Any:
    """Call `look` until `true` accepts its result, and return the result. Raise AssertionError at the deadline."""
    began = time.monotonic()
    while not true(value := look()):
        waited = time.monotonic() - began
        assert waited < seconds or waited < patient(seconds), f"not within {waited:.0f} s; last seen: {value}"
        time.sleep(pause)
    return value
