"""The log of a coordinator about the clock of its machine.

One rule: one line when the clock becomes wrong, one when it is right again. A coordinator goes on with a wrong clock:
it ends no job and deletes none.
"""

import logging
import threading
from collections.abc import Callable

from kube.process.turns import Turns

CHECK_SECONDS = 2.0
log = logging.getLogger(__name__)


class ClockLog:
    """Watches the clock in a thread of its own."""

    def __init__(self, problem: Callable[[], str]) -> None:
        """`problem` returns how the clock is wrong; empty if it is right."""
        self._problem = problem
        self._is_wrong = False

    def run(self, stop: threading.Event, leading: Callable[[], bool], turns: Turns) -> None:  # noqa: ARG002
        """Check the clock until stopped, also while another coordinator leads, as one of the loops in `turns`."""
        for _ in turns.loop("clock-log").rounds(stop, CHECK_SECONDS):
            self.check()

    def check(self) -> None:
        """Log whether the clock is wrong, if that has changed."""
        problem = self._problem()
        if bool(problem) != self._is_wrong:
            log.warning("%s: set it", problem) if problem else log.info("the clock of this machine is right again")
        self._is_wrong = bool(problem)
