"""The rounds of objects that look at all jobs repeatedly while this process leads, and put the wanted statuses of jobs.

One rule: an error costs one round. After an error, and when another process may lead, the remembered facts are void.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from coordinator.cache.watches import Watches
from kube.process.turns import Turns


class Rounds(ABC):
    """An object that looks at all jobs in a thread of its own."""

    __slots__ = ()
    watches: Watches
    loop: ClassVar[str]
    """The name of its loop."""
    subject: ClassVar[str]
    """What an error is about, in words."""
    seconds: ClassVar[float]
    """The seconds between two looks."""

    @abstractmethod
    def look(self) -> None:
        """Look at all jobs once, and put the wanted fields of their statuses."""

    def forget(self) -> None:  # noqa: B027  most remember nothing that could become wrong
        """Forget everything that was seen."""

    def run(self, stop: threading.Event, leading: Callable[[], bool], turns: Turns) -> None:
        """Look while this process leads, until stopped, as one of the loops in `turns`."""
        for _ in turns.loop(self.loop).rounds(stop, self.seconds):
            if not (leading() and self.watches.synced):
                self.forget()
                continue
            try:
                self.look()
            except Exception as error:
                self.forget()
                self.watches.errors.record(self.subject, error)
            else:
                self.watches.errors.clear(self.subject)
