"""The loop of `torchq top` on a terminal: it reads the cluster on a thread, and draws whenever there are new facts.

One rule: keys and resizes are obeyed at once, also while a server does not answer.
"""

import threading
from collections.abc import Callable

from rich.console import Console, Group
from rich.live import Live

from coordinator.cli import output
from coordinator.cli.top import screen
from coordinator.cli.top.keyboard import Keyboard
from coordinator.cli.top.screen import ScreenReading

LOOK_SECONDS = 0.2
"""How often the size of the terminal is looked at."""


class ReadingThread:
    """Reads the cluster again and again on a thread, and keeps the newest reading."""

    def __init__(self, read: Callable[[], ScreenReading], every: float, most: int) -> None:
        """Begin at once; end after `most` readings (0: never)."""
        self.newest: ScreenReading | None = None
        self.number = 0
        self.error: BaseException | None = None
        self._read, self._every, self._most = read, every, most
        self.stop = threading.Event()
        """Set to read no more."""
        # A request may take seconds: the command does not wait for it when the user quits.
        threading.Thread(target=self._run, name="top-reader", daemon=True).start()

    def _run(self) -> None:
        try:
            while not self.stop.is_set():
                self.newest = self._read()
                self.number += 1
                if self.number == self._most:
                    return
                self.stop.wait(self._every)
        except BaseException as error:
            self.error = error

    @property
    def done(self) -> bool:
        """Whether all readings are made."""
        return 0 < self._most <= self.number


def run(read: Callable[[], ScreenReading], every: float, most: int, console: Console) -> None:
    """Show the cluster until the user quits, or `most` readings are shown (0: no end). Raise the errors that a reading
    raises.
    """
    reader = ReadingThread(read, every, most)
    first, drawn, key = 0, None, ""  # first: the index of the first queue that is shown
    try:
        with (
            Keyboard() as keyboard,
            Live(
                console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            ) as shown,
        ):
            while key != "quit":
                done, size = reader.done, console.size
                if reader.error is not None:
                    raise reader.error
                if (newest := reader.newest) is not None:
                    first = min(first, screen.most_scrolled(newest, output.now(), size.height))
                    state = (reader.number, size, first)
                    if state != drawn:  # only what has changed is drawn
                        lines = screen.lines(newest, output.now(), size.width, size.height, first)
                        shown.update(Group(*lines), refresh=True)
                        drawn = state
                if done:
                    return
                key = keyboard.read(LOOK_SECONDS)
                page = max(1, size.height // 2)
                steps = {"up": -1, "down": 1, "page up": -page, "page down": page}
                first = max(0, first + steps.get(key, 0))
    finally:
        reader.stop.set()
