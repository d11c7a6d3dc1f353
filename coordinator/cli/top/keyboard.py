"""The keys that a user presses while a command shows a live screen.

One rule: the terminal is restored, however the command ends. Without a terminal there are no keys.
"""

import os
import select
import sys
import termios
import time
import tty
from typing import Any

_SEQUENCES = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b"k": "up",
    b"j": "down",
    b" ": "page down",
    b"q": "quit",
    b"Q": "quit",
}


class Keyboard:
    """The keys of the terminal of standard input, as a context manager."""

    def __init__(self) -> None:
        self._file = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._before: list[Any] | None = None
        self._typed = b""

    def __enter__(self) -> "Keyboard":
        if self._file is not None:
            self._before = termios.tcgetattr(self._file)
            tty.setcbreak(self._file)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None and self._before is not None:
            termios.tcsetattr(self._file, termios.TCSADRAIN, self._before)

    def read(self, seconds: float) -> str:
        """Return the name of the next key, or an empty text if none that is known is pressed in time."""
        if self._file is None:
            time.sleep(seconds)
            return ""
        if not self._typed:
            ready, _, _ = select.select([self._file], [], [], seconds)
            self._typed = os.read(self._file, 1024) if ready else b""
        while self._typed:  # what is not known is skipped
            for sequence, name in _SEQUENCES.items():
                if self._typed.startswith(sequence):
                    self._typed = self._typed[len(sequence) :]
                    return name
            self._typed = self._typed[1:]
        return ""
