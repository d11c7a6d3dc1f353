"""Open claims: the first jobs of queues for which room is being freed, and which no job of their queue takes from them.

One rule: a claim follows from the record that the store holds, so that a new picker keeps it as well. It costs nothing.

Running jobs give room back for a job that waits. The pool protects that room by its one reservation, and the cohort by
its claims. Inside the job's own queue smaller jobs may pass it, and would take the room. While the job has an open
claim, other jobs of its queue pass it only if they leave what it needs of the resources that they use themselves. A
part of its own quota that is free already is claimed in its cohort, too, though the rest is not free yet.

A first job whose queue has no room for it would wait without end, too, if others passed it for ever. Once it has waited
for as long as its patience lasts, it is late, which is the same as a claim: what jobs of its queue free is kept for it,
as far as it asks for the same resources, and 60 jobs for CPUs pass a first job that waits for a GPU.

A claim ends when the job goes, and when it is not the first job of its queue any more. Nobody pays for a claim: the
room was free for that job alone. It may be lost with Redis at any moment.
"""

from collections.abc import Mapping
from dataclasses import replace

from crds.keys import JobKey
from queues.picking.kept_room import PoolReservation, Records
from queues.picking.queue_state import QueueState
from queues.rules import Patience


class OpenClaims:
    """The queues whose first jobs have an open claim, while picks are made."""

    def __init__(self, queues: Mapping[str, QueueState], reservation: PoolReservation) -> None:
        """`queues` belongs to the caller, who calls `add` when one is loaded. The reservation keeps the records."""
        self._queues = queues
        self._reservation = reservation
        self.names: set[str] = set()
        """The queues whose records have a claim, or are of late jobs."""
        self.passed: set[str] = set()
        """The queues whose first jobs others have passed, and which are not late."""
        self._looked: tuple[float, Patience] | None = None
        """When these were looked at, and with which patience. No job is late at the moment when it is passed first."""
        self.outdated: set[str] = set()
        """Queues whose claims or records have changed, so that they must bid again. The caller clears it."""

    def add(self, queue: QueueState) -> None:
        """Note a queue whose known entries have changed."""
        name, record = queue.spec.name, queue.overtaken
        if record is not None and record.times and not record.late:
            self.passed.add(name)
            self._looked = None
        if record is not None and (record.claimed or record.late):
            self.names.add(name)
            self.outdated.add(name)
        elif name in self.names:
            self.names.discard(name)
            self.outdated.add(name)

    def keys(self) -> dict[str, JobKey]:
        """Return the queues with an open claim, and the job that has it."""
        records = {name: self._queues[name].first_overtaken for name in self.names}
        return {name: record.key for name, record in records.items() if record is not None and record.claimed}

    def open(self, name: str, key: JobKey, now: float) -> None:
        """Open a claim for a job, unless it is not the first one of its queue. It replaces the queue's claim before."""
        queue = self._first(name, key)
        if queue is not None and not queue.record_of_first(now).claimed:
            self._keep(queue, claimed=True, impatient=False, now=now)

    def note_passed(self, records: Records) -> None:
        """Note that a pick has passed the first jobs of queues, and has left these records."""
        self.passed.update(name for name, record in records.items() if record is not None and not record.late)

    def look(self, patience: Patience, now: float) -> None:
        """Look at which first jobs have waited for long enough, once for each time and patience."""
        if self._looked is None or self._looked[0] != now or self._looked[1] is not patience:
            self._looked = now, patience
            self._look(patience, now)

    def _look(self, patience: Patience, now: float) -> None:
        """Note which first jobs have waited for as long as others of their queues may pass them."""
        for name in sorted(self.passed):
            queue = self._queues[name]
            record = queue.first_overtaken
            if queue.overtaken is None or queue.overtaken.late or not queue.overtaken.times or queue.spec.strict:
                self.passed.discard(name)
            elif record is not None and now > record.since and now - record.since >= patience.within(name):
                self.passed.discard(name)
                self._reservation.keep(queue, replace(record, late=True))
                self.add(queue)

    def close(self, name: str, *, late: bool = True) -> None:
        """End the claim of a queue, if it has one; without `late`, its first job is not late either."""
        queue = self._queues.get(name)
        record = queue.overtaken if queue is not None else None
        if queue is not None and record is not None and (record.claimed or (record.late and not late)):
            collects = record.collected_until or record.uncollected
            counts = record.times or record.impatient or record.kept is not None or collects
            rest = replace(record, claimed=False, late=record.late and late)
            self._reservation.keep(queue, rest if counts else None)
            self.outdated.add(name)
            self.add(queue)
        if record is None or not record.late or not late:
            self.names.discard(name)

    def hasten(self, name: str, key: JobKey, now: float) -> None:
        """End the patience of a job at once, if it is the first one of its queue."""
        queue = self._first(name, key)
        if queue is not None and not queue.record_of_first(now).impatient:
            self._keep(queue, claimed=False, impatient=True, now=now)

    def end(self) -> None:
        """End the claims of jobs that are not the first ones of their queues any more."""
        for name in sorted(self.names):
            queue = self._queues[name]
            if not queue.is_claimed and not queue.is_exhausted:
                self.close(name, late=False)

    def _first(self, name: str, key: JobKey) -> QueueState | None:
        """Return a queue if a job is its first one."""
        queue = self._queues.get(name)
        is_first = queue is not None and queue.first is not None and queue.first.waiting.entry.key == key
        return queue if is_first else None

    def _keep(self, queue: QueueState, *, claimed: bool, impatient: bool, now: float) -> None:
        record = queue.record_of_first(now)
        since = record.since if record.times or record.impatient else now
        claimed, impatient = claimed or record.claimed, impatient or record.impatient
        self._reservation.keep(queue, replace(record, claimed=claimed, impatient=impatient, since=since))
        self.add(queue)
        self.outdated.add(queue.spec.name)
