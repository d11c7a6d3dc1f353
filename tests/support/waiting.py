"""Waiting for the effect of another thread, another process or a server.

One rule: a test waits for a condition and never for time to pass. The deadline allows for a busy machine; a correct
program never reaches it.
"""

import time
from collections.abc import Callable
from typing import Any

SECONDS = 60.0
PAUSE_SECONDS = 0.01


def until(look: Callable[[], Any], true: Callable[[Any], Any] = bool, seconds: float = SECONDS) -> Any:
    """Call `look` until `true` accepts its result, and return that result. Raise AssertionError at the deadline."""
    deadline = time.monotonic() + seconds
    while not true(value := look()):
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s; last seen: {value}"
        time.sleep(PAUSE_SECONDS)
    return value
