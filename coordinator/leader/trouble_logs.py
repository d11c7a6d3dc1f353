"""The log lines about problems around a coordinator: its clock, and workers that take no work of the leader.

One rule: each problem is one line when it begins and one line when it is over, however often the problem is seen. A
coordinator with a wrong clock continues: it ends and deletes no job by this clock.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from kube.process.turns import Turns
from queues.errors import QueueError
from queues.registrations import describe_refused
from queues.storage.stats import QueueStats

INTERVAL_SECONDS = 2.0
"""The seconds between two looks at the clock, and between two readings of the workers."""
log = logging.getLogger(__name__)


class ClockLog:
    """Watches the clock in a thread of its own."""

    def __init__(self, problem: Callable[[], str]) -> None:
        """`problem` returns how the clock is wrong; empty if it is right."""
        self._problem = problem
        self._is_wrong = False

    def run(self, stop: threading.Event, leading: Callable[[], bool], turns: Turns) -> None:  # noqa: ARG002
        """Check the clock until stopped, also while another coordinator leads, as one of the loops in `turns`."""
        for _ in turns.loop("clock-log").rounds(stop, INTERVAL_SECONDS):
            self.check()

    def check(self) -> None:
        """Log whether the clock is wrong, if that has changed."""
        problem = self._problem()
        if bool(problem) != self._is_wrong:
            log.warning("%s: set it", problem) if problem else log.info("the clock of this machine is right again")
        self._is_wrong = bool(problem)


@dataclass(slots=True)
class WorkerLog:
    """Reads which workers are registered, and logs the workers of other layouts and installations."""

    read: Callable[[], QueueStats]
    _named: frozenset[str] = field(default_factory=frozenset)

    def run(self, stop: threading.Event, leading: Callable[[], bool], turns: Turns) -> None:
        """Log while this process leads, until stopped, as one of the loops in `turns`."""
        for _ in turns.loop("worker-log").rounds(stop, INTERVAL_SECONDS):
            if leading():
                self.note()
            else:
                self._named = frozenset()

    def note(self) -> None:
        """Read once, and log the changes. A Redis that does not answer is not logged here."""
        try:
            numbers = self.read()
        except QueueError:
            return
        found = frozenset(describe_refused(numbers.members, numbers.store)) if numbers.epoch else frozenset()
        for sentence in sorted(found - self._named):
            log.warning("%s", sentence)
        if self._named and not found:
            log.info("no worker is turned away any more")
        self._named = found
