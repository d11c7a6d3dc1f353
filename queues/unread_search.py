"""Searches of long queues for a job that can go, when none of the jobs can that the picker has read.

One rule: a search costs the store the same however many jobs wait, and there are only some in a second.

The picker reads the first jobs of a queue. With 400 jobs in front that wait for GPUs, it would never see the job behind
them that asks for CPUs only. So the searches look through the rest of such a queue, window by window, for jobs that ask
for another demand than all jobs that are known. Windows of 2,048 jobs, a queue of 5,000 that knows its first 128:

    search   looks at jobs       finds
    1        129 to 2,176        jobs for CPUs, at most as many as are read of a queue: picked if they fit
    2        2,177 to 4,224      nothing: the jobs that the first search found stay known
    3        4,225 to 5,000      nothing; the next search begins at 129 again, once anything has changed

The queues that need searches take turns.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from queues.picking.picker import Picker
from queues.store import QueueReader

LOOKED_AT = 2048
"""At how many jobs a search looks. The store needs a few milliseconds for them, in which it does nothing else."""
SECONDS = 0.25
"""The least time between two searches."""
ASKED = 64
"""Of how many queues at most the picker is asked in a round whether they need a search."""


@dataclass(slots=True)
class _Tour:
    """The searches of one queue from its first unread job to its last one."""

    change: int
    """The last change of the store when the searches began."""
    end: int = 0
    """The number of first jobs that were looked at."""
    done: bool = False


@dataclass(slots=True)
class UnreadSearch:
    """The searches of all queues of one store."""

    store: QueueReader
    _at: float = -math.inf
    _last: str = ""
    _tours: dict[str, _Tour] = field(default_factory=dict)

    def run(self, picker: Picker, change: int, most: int, now: float) -> None:
        """Make the next search, if it is due and a queue needs one, and let the picker know up to `most` jobs.

        `change` is the last change of the store that the picker knows. Raises the errors of the store.
        """
        names = sorted(picker.read_to_limit)
        if not names or abs(now - self._at) < SECONDS:
            return
        self._at = now
        self._tours = {name: tour for name, tour in self._tours.items() if name in picker.read_to_limit}
        turn = bisect_right(names, self._last)
        for name in [*names[turn:], *names[:turn]][:ASKED]:
            self._last = name
            if self._search(picker, name, change, most):
                return

    def move(self, picks: Mapping[str, int]) -> None:
        """Note how many jobs were picked of each queue: those behind them have moved forward."""
        for name in self._tours.keys() & picks.keys():
            self._tours[name].end -= picks[name]

    def _search(self, picker: Picker, name: str, change: int, most: int) -> bool:
        """Search one queue. Return whether it needed a search."""
        tour = self._tours.setdefault(name, _Tour(change))
        if (tour.done and tour.change == change) or (stuck := picker.stuck_on(name)) is None:
            return False
        if tour.done:
            tour = self._tours[name] = _Tour(change)
        count, demands = stuck
        found = self.store.find_others(name, max(count, tour.end), demands, LOOKED_AT, most)
        # A queue in strict order forgets what was found when it is read anew. The same jobs are then looked at again: a
        # search behind them would find a job that may not pass them.
        if not (found.heads and picker.set_others(name, found.heads)):
            tour.end, tour.done = found.after, found.after >= found.waiting
        return True
