"""A file that many threads write lines to.

One rule: a line is written whole, and `send` may be called anywhere, also by a finalizer in the middle of another
`send` of the same thread.
"""

from __future__ import annotations

import os
import threading
from collections import deque


class Outbox:
    """The lines for one file descriptor, in the order in which they were sent."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lines: deque[bytes] = deque()
        self._writing = threading.Lock()
        self.is_broken = False
        """Whether the other side has ended."""

    def send(self, line: bytes) -> None:
        """Write a line, or leave it to the thread that is writing. A line for a side that has ended is dropped."""
        self._lines.append(line)
        # Checked again after each release: the line may have come after the last look of the thread that was writing.
        while self._lines and self._writing.acquire(blocking=False):
            try:
                self._write_all()
            finally:
                self._writing.release()

    def close(self, seconds: float) -> bool:
        """Drop all messages that are sent from now on. Return whether the line that is being written was complete
        within a time.
        """
        is_complete = self._writing.acquire(timeout=seconds)
        self.is_broken = True
        if is_complete:
            self._writing.release()
        return is_complete

    def _write_all(self) -> None:
        while self._lines:
            rest = memoryview(self._lines.popleft())
            while rest and not self.is_broken:
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                except OSError:
                    self.is_broken = True
