"""The loop of `torchq top` on a terminal: it reads the cluster on a thread, and draws whenever something is new.

One rule: keys and resizes are obeyed at once, also while a server does not answer.
"""

import threading
from collections.abc import Callable

from rich.console import Console, Group
from rich.live import Live

from coordinator.cli import output
from coordinator.cli.top import screen
from coordinator.cli.top.keyboard import Keyboard
from coordinator.cli.top.screen import Reading

LOOK_SECONDS = 0.2
"""How often the size of the terminal is looked at."""


class Reader:
    """Reads the cluster again and again on a thread, and keeps the newest reading."""

    def __init__(self, read: Callable[[], Reading], every: float, most: int) -> None:
        """Begin at once; end after `most` readings (0: never)."""
        self.newest: Reading | None = None
        self.number = 0
        self.error: BaseException | None = None
        self._read, self._every, self._most = read, every, most
        self._end = threading.Event()
        # A request may take seconds: the command does not wait for it when the user quits.
        threading.Thread(target=self._run, name="top-reader", daemon=True).start()

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                self.newest = self._read()
                self.number += 1
                if self.number == self._most:
                    return
                self._end.wait(self._every)
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        """Read no more."""
        self._end.set()

    @property
    def done(self) -> bool:
        """Whether all readings are made."""
        return 0 < self._most <= self.number


class Picture:
    """What of the newest reading is drawn: it draws only what has changed."""

    def __init__(self, reader: Reader, live: Live, console: Console) -> None:
        self._reader, self._live, self._console = reader, live, console
        self._first = 0
        """The index of the first queue that is shown."""
        self._drawn: object = None

    def draw(self) -> None:
        """Draw the newest reading in the present size. Raise what a reading raised."""
        reader, size = self._reader, self._console.size
        if reader.error is not None:
            raise reader.error
        if reader.newest is None:
            return
        self._first = min(self._first, screen.most_scrolled(reader.newest, output.now(), size.height))
        state = (reader.number, size, self._first)
        if state != self._drawn:
            lines = screen.lines(reader.newest, output.now(), size.width, size.height, self._first)
            self._live.update(Group(*lines), refresh=True)
            self._drawn = state

    def scroll(self, key: str) -> None:
        """Move the queues as a key says; other keys do nothing."""
        page = max(1, self._console.size.height // 2)
        steps = {"up": -1, "down": 1, "page up": -page, "page down": page}
        self._first = max(0, self._first + steps.get(key, 0))


def run(read: Callable[[], Reading], every: float, most: int, console: Console) -> None:
    """Show the cluster until the user quits, or `most` readings are shown (0: no end). Raise what a reading raises."""
    reader = Reader(read, every, most)
    try:
        with Keyboard() as keyboard, Live(console=console, screen=True, auto_refresh=False) as shown:
            picture, key = Picture(reader, shown, console), ""
            while key != "quit":
                done = reader.done
                picture.draw()
                if done:
                    return
                key = keyboard.read(LOOK_SECONDS)
                picture.scroll(key)
    finally:
        reader.stop()
