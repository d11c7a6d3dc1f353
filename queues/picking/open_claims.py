"""Open claims: the first jobs of queues for which room is being freed, and which no job of their queue takes from them.

One rule: a claim follows from the record that the store holds, so that a new picker keeps it as well. It costs nothing.

Running jobs give room back for a job that waits. The pool protects that room by its one reservation, and the cohort by
its claims. Inside the job's own queue smaller jobs may pass it, and would take the room. While the job has an open
claim, other jobs of its queue pass it only if they leave what it needs of the resources that they use themselves. A
part of its own quota that is free already is claimed in its cohort, too, though the rest is not free yet.

A claim ends when the job goes, and when it is not the first job of its queue any more. Nobody pays for a claim: the
room was free for that job alone. It may be lost with Redis at any moment.
"""

from collections.abc import Mapping
from dataclasses import replace

from crds.keys import JobKey
from queues.picking.kept_room import PoolReservation
from queues.picking.queue_state import QueueState
from queues.rules import Patience


class OpenClaims:
    """The queues whose first jobs have an open claim, while picks are made."""

    def __init__(self, queues: Mapping[str, QueueState], reservation: PoolReservation, patience: Patience) -> None:
        """`queues` belongs to the caller, who calls `add` when one is loaded. The reservation keeps the records."""
        self._queues = queues
        self._reservation = reservation
        self._patience = patience
        self.names: set[str] = set()
        """The queues whose records have a claim."""
        self.outdated: set[str] = set()
        """Queues whose claims or records have changed, so that they must bid again. The caller clears it."""

    def add(self, queue: QueueState) -> None:
        """Note a queue whose known entries have changed."""
        name, record = queue.spec.name, queue.overtaken
        if record is not None and record.claimed:
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
        if queue is not None and not queue.is_claimed:
            self._keep(queue, claimed=True, times=0, now=now)

    def close(self, name: str) -> None:
        """End the claim of a queue, if it has one."""
        queue = self._queues.get(name)
        record = queue.overtaken if queue is not None else None
        if queue is not None and record is not None and record.claimed:
            rest = replace(record, claimed=False) if record.times or record.kept is not None else None
            self._reservation.keep(queue, rest)
            self.outdated.add(name)
        self.names.discard(name)

    def hasten(self, name: str, key: JobKey, now: float) -> None:
        """End the patience of a job at once, if it is the first one of its queue."""
        queue = self._first(name, key)
        if queue is not None and (queue.times_overtaken < self._patience.times):
            self._keep(queue, claimed=queue.is_claimed, times=self._patience.times, now=now)

    def end(self) -> None:
        """End the claims of jobs that are not the first ones of their queues any more."""
        for name in sorted(self.names):
            queue = self._queues[name]
            if not queue.is_claimed and not queue.is_exhausted:
                self.close(name)

    def _first(self, name: str, key: JobKey) -> QueueState | None:
        """Return a queue if a job is its first one."""
        queue = self._queues.get(name)
        is_first = queue is not None and queue.first is not None and queue.first.waiting.entry.key == key
        return queue if is_first else None

    def _keep(self, queue: QueueState, *, claimed: bool, times: int, now: float) -> None:
        record = queue.record_of_first(now)
        since = record.since if record.times else now
        changed = replace(record, claimed=claimed, times=max(times, record.times), since=since)
        self._reservation.keep(queue, changed)
        self.add(queue)
        self.outdated.add(queue.spec.name)
