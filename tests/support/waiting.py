"""Waiting for what somebody else does: another thread, another process, a server.

One rule: for a condition, never for time to pass. The deadline is for a machine that does much else; whoever is right
never waits that long.
"""

import time
from collections.abc import Callable
from typing import Any

SECONDS = 60.0
PAUSE_SECONDS = 0.01


def until(look: Callable[[], Any], true: Callable[[Any], Any] = bool, seconds: float = SECONDS) -> Any:
    """Look until it is true; what was seen then. AssertionError with what was seen last if it is not in time."""
    deadline = time.monotonic() + seconds
    while not true(seen := look()):
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s; last seen: {seen}"
        time.sleep(PAUSE_SECONDS)
    return seen
