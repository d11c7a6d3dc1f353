"""Searches of long queues for a job that can go, when none of the jobs can that the picker has read.

One rule: a search costs the store the same however many jobs wait, and there are only some in a second.

The picker reads the first jobs of a queue. With 400 jobs in front that wait for GPUs, it would never see the job behind
them that asks for CPUs only. So the searches look through the rest of such a queue, window by window, for jobs that ask
for another demand than all jobs that are known. Windows of 2,048 jobs, a queue of 5,000 that knows its first 128:

    search   looks at jobs       finds
    1        129 to 2,176        jobs for CPUs, at most as many as are read of a queue: picked if they fit
    2        2,177 to 4,224      nothing: the jobs that the first search found stay known
    3        4,225 to 5,000      nothing; the next search begins at 129 again, once anything has changed

Where the known jobs can never run, the first job that a search finds is the first one of its queue, and waits for room
as such. It is looked for in several windows at once, stays known while later windows are searched, and is looked for
where it was when the queue was read anew. In strict order no job may pass it. So the searches of such a queue begin at
129 again with each change of the queue, and a change while they look ends them. While such a queue changes all the
time, the searches come no further than IN_A_ROW windows.

The queues that need searches take turns.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from queues.picking.picker import Picker
from queues.picking.queue_state import QueueState
from queues.store import QueueReader

LOOKED_AT = 2048
"""At how many jobs a search looks. The store needs a few milliseconds for them, in which it does nothing else."""
SECONDS = 0.25
"""The least time between two searches."""
IN_A_ROW = 4
"""How many windows a search looks through at most for the first job of a queue."""
ASKED = 64
"""Of how many queues at most the picker is asked in a round whether they need a search."""


@dataclass(slots=True)
class _Tour:
    """The searches of one queue from its first unread job to its last one."""

    change: int
    """The last change of the store when the searches began."""
    first: int = 0
    """The number of jobs before the window in which the queue's first job was found, where no known job can run."""
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
            self._tours[name].first -= picks[name]
            self._tours[name].end -= picks[name]

    def _search(self, picker: Picker, name: str, change: int, most: int) -> bool:
        """Search one queue. Return whether it needed a search."""
        tour = self._tours.setdefault(name, _Tour(change))
        if (tour.done and tour.change == change) or (queue := picker.stuck(name)) is None:
            return False
        if tour.done or (queue.spec.strict and not queue.was_searched):
            tour = self._tours[name] = _Tour(change, 0 if queue.first is None else tour.first)
        for _ in range(IN_A_ROW if queue.first is None else 1):
            self._look(picker, queue, tour, most)
            if tour.done or queue.first is not None:
                break
        return True

    def _look(self, picker: Picker, queue: QueueState, tour: _Tour, most: int) -> None:
        """Look through one window."""
        name, had_first = queue.spec.name, queue.first is not None
        is_known = had_first or queue.was_searched or not tour.first
        start = max(queue.remaining, tour.end if is_known else tour.first)
        found = self.store.find_others(name, start, queue.demands(), LOOKED_AT, most)
        if queue.spec.strict and found.waiting != queue.remaining + queue.unread:
            tour.done = True  # the queue is read anew in the next round, and then searched from its beginning
            return
        picker.set_others(name, found.heads)
        if queue.first is not None and not had_first:
            tour.first = start
        tour.end = max(tour.end, found.after)
        tour.done = found.after >= found.waiting
