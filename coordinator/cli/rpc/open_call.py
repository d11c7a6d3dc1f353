"""A call that has no answer yet: its cancellation, and how many items it may send.

One rule: a stream stops before it has more than a window of items on their way, so that a slow reader stalls nobody
else.
"""

import threading
from collections.abc import Callable

from torchq._protocol import WINDOW

Tell = Callable[[str, str], object]
"""A function that sends a note for people, with its level."""


class OpenCall:
    """One call of a client. A thread works for it; the thread that reads the requests cancels it."""

    def __init__(self, tell: Tell = lambda _text, _level: None) -> None:
        """Create a call. `tell` sends a note for people, with the level `info` or `warning`."""
        self.tell = tell
        self.stop = threading.Event()
        """Set once nobody waits for the answer."""
        self._changed = threading.Condition()
        self._allowed = WINDOW
        self._closers: list[Callable[[], object]] = []

    @property
    def is_cancelled(self) -> bool:
        """Whether nobody waits for the answer."""
        return self.stop.is_set()

    def when_cancelled(self, close: Callable[[], object]) -> None:
        """Let the cancellation call `close`, which ends what the thread of this call waits for."""
        with self._changed:
            if not self.is_cancelled:
                self._closers.append(close)
                return
        close()

    def cancel(self) -> None:
        """End the call."""
        with self._changed:
            self.stop.set()
            closers, self._closers = self._closers, []
            self._changed.notify_all()
        for close in closers:
            close()

    def allow(self, count: int) -> None:
        """Let the stream send more items."""
        with self._changed:
            self._allowed += count
            self._changed.notify_all()

    def may_send(self) -> bool:
        """Wait until one more item may be sent, and count it. Return False once the call is cancelled."""
        with self._changed:
            self._changed.wait_for(lambda: self._allowed > 0 or self.is_cancelled)
            self._allowed -= 1
            return not self.is_cancelled
