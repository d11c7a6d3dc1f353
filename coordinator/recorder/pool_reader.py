"""What the pool has, for the history: a coordinator is asked once a minute.

One rule: without an answer the pool stays as it was last known.
"""

import logging
import threading
import time
from collections.abc import Callable

from coordinator.errors import CoordinatorError
from crds.resources.amounts import Amounts
from kube.errors import ClusterError
from kube.process.turns import Turns

SECONDS = 60.0
LOOK_SECONDS = 5.0
"""How soon a coordinator that did not answer is asked again."""
log = logging.getLogger(__name__)


class PoolReader:
    """Asks for the amounts of the pool, and notes them."""

    def __init__(
        self,
        read: Callable[[], Amounts],
        note: Callable[[Amounts], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`read` returns what the pool has, nothing if it has no limits, and may raise CoordinatorError, ClusterError
        and ValueError."""
        self._read = read
        self._note = note
        self._clock = clock
        self._ask_at = clock()

    def run(self, stop: threading.Event, turns: Turns) -> None:
        """Ask until stopped, as one of the loops in `turns`."""
        turn = turns.loop("pool")
        self.step()  # before the first pause: jobs may run at once
        for _ in turn.rounds(stop, LOOK_SECONDS):
            self.step()

    def step(self) -> None:
        """Ask if it is time."""
        if self._clock() < self._ask_at:
            return
        try:
            self._note(self._read())
        except (CoordinatorError, ClusterError, ValueError) as error:
            log.debug("the size of the pool is not known: %s", error)
            return
        except Exception:
            log.exception("the answer about the pool cannot be read")
        self._ask_at = self._clock() + SECONDS
