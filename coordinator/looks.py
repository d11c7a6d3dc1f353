"""Waits for what no watch shows: looks again and again, as long as there is time."""

import time
from collections.abc import Iterator


def looks(seconds: float, pause: float) -> Iterator[None]:
    """Yield at once, then after each pause, until the time is over."""
    deadline = time.monotonic() + seconds
    yield
    while time.monotonic() <= deadline:
        time.sleep(pause)
        yield
