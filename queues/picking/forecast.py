"""What the picker would do with a snapshot: the next picks, and why a job waits.

One rule: pure. The coordinator's own picker decides, and nothing is committed to a store.
"""

from collections.abc import Mapping
from dataclasses import replace

from crds.resources.amounts import NOTHING
from queues import order
from queues.picking import explain
from queues.picking.explain import Explanation
from queues.picking.picker import Picker
from queues.rules import PickRules
from queues.values import Batch, Entry, QueuePosition, QueueSnapshot, QueueSpec, Snapshot, WaitingEntry


class Forecast:
    """A picker that works on a snapshot. `torchq next`, `torchq job why` and `bench simulate` use it."""

    def __init__(self, snapshot: Snapshot, rules: PickRules) -> None:
        """Begin with a whole snapshot."""
        self._picker = Picker(snapshot, rules)

    def update(self, snapshot: Snapshot) -> None:
        """Apply what has changed since the last snapshot. Picks of this forecast count as committed until then."""
        self._picker.update(snapshot)

    def picks(self, now: float, limit: int) -> Batch:
        """Return at most `limit` picks, best first; fewer if no more fit, or if the snapshot lacks a queue's next job.

        `now` is in seconds since 1970. The next call continues after these picks.
        """
        return self._picker.picks(now, limit)

    def explain(self, place: QueuePosition, now: float) -> Explanation:
        """Return why the job at a place waits; the forecast stays as it is."""
        return explain.explain(self._picker, place, now)

    @property
    def needs_entries(self) -> Mapping[str, int]:
        """The queues that need more entries than the snapshot has, and the number of entries that remain."""
        return self._picker.needs_entries

    def partly_read(self, limit: int) -> Mapping[str, int]:
        """Return the queues that need entries from behind those in the snapshot, because none of these can go now.

        The values are the numbers of entries that remain. Queues with `limit` entries or more are left out.
        """
        return self._picker.partly_read(limit)


def suppose(snapshot: Snapshot, entry: Entry, rules: PickRules, now: float) -> Explanation:
    """Return why a job that is in no queue's order would wait if it took its place now; "Next" if it would fit.

    Where the snapshot shows only the first jobs of the queue, the jobs behind them count as no obstacle.
    """
    others = [view for view in snapshot.queues if view.spec.name != entry.queue]
    queue = next((view for view in snapshot.queues if view.spec.name == entry.queue), None)
    queue = queue or QueueSnapshot(spec=QueueSpec(name=entry.queue), usage=NOTHING, waiting=0, heads=())
    position = order.place(entry, queue.spec.aging_seconds)
    rank = sum(order.place(head.entry, queue.spec.aging_seconds) < position for head in queue.heads)
    heads = (*queue.heads[:rank], WaitingEntry(entry, 0), *queue.heads[rank:])
    joined = replace(queue, heads=heads, waiting=queue.waiting + 1)
    queues = sorted((*others, joined), key=lambda view: view.spec.name)
    place = QueuePosition(entry=entry, rank=rank, waiting=joined.waiting)
    return Forecast(replace(snapshot, queues=tuple(queues)), rules).explain(place, now)
