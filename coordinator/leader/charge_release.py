"""Freeing the charges of jobs that hold nothing any more.

One rule: a charge is freed last. What must be kept for now, since pods may be on their way that are not seen here yet,
is asked for again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from coordinator.cache.routing_rules import Rules
from coordinator.cache.views import JobView
from coordinator.cache.watches import Watches
from coordinator.leader import error_isolation
from coordinator.routing import eligibility, route
from coordinator.routing.route import Route
from coordinator.settings import Settings
from crds.keys import JobKey
from queues.pick_cycle import Rounds
from queues.picking import queue_state
from queues.store import QueueStore
from queues.values import Reservation


@dataclass(frozen=True, slots=True)
class Kept:
    """A charge that could not be freed: when that was tried first, and when last."""

    since: float
    asked: float


@dataclass(slots=True)
class Freeing:
    """One leader's; of one thread."""

    watches: Watches
    store: QueueStore
    rounds: Rounds
    settings: Settings
    clock: Callable[[], float]
    rules: Callable[[], Rules]
    route: Callable[[JobKey], Route]
    """The route of a key by the newest state."""
    _kept: dict[JobKey, Kept] = field(default_factory=dict)
    """Jobs that hold nothing any more, as far as is seen here, whose charge could not be freed yet."""

    def find(self, keys: list[JobKey], routes: list[Route]) -> list[JobKey]:
        """Those that hold nothing any more, and those that hold room for an attempt that is over, or for a job as it
        was before its owner edited it."""
        puts = {key: each.put for key, each in zip(keys, routes, strict=True) if each.put is not None}
        held = self.store.reservations(list(puts)) if puts else {}
        over = {key: each.over for key, each in zip(keys, routes, strict=True)}
        late = {key for key, each in held.items() if each.attempt <= over[key] or not route.served(puts[key], each)}
        return [key for key, each in zip(keys, routes, strict=True) if each.remove or key in late]

    def free(self, keys: list[JobKey], seen: int) -> None:
        """Free what is charged for these jobs; `seen` is the newest resourceVersion of pods that is known here.

        After as long as a resync takes to heal anything, what there is to see is believed: a worker that was at work
        has lost its key by then, and an API server that came back from a backup never reaches the versions of before.
        """
        now, refunded = self.clock(), self._refunded(keys)
        since = {key: self._kept.pop(key).since if key in self._kept else now for key in keys}
        late = [key for key in keys if now - since[key] >= self.settings.resync_seconds]
        kept = self.store.remove([key for key in keys if key not in late], seen)
        if late:
            self.store.remove(late)
        self._kept |= {key: Kept(since[key], now) for key in kept}
        for each in refunded:
            if each.key not in kept:
                self.rounds.refund(each.queue, queue_state.price(each.charge, self.settings.cost))

    def free_again(self) -> int:
        """The same for what was kept; no worker need look at those jobs for that. How many were freed."""
        if not self._kept:
            return 0
        now, seen = self.clock(), self.watches.pods.resource_version
        due = [key for key, each in self._kept.items() if now - each.asked >= self.settings.dispatch_seconds]
        gone: list[JobKey] = []
        error_isolation.each(due, lambda keys: self._let_go(keys, seen, gone), self.watches.skip)
        freed = [key for key in gone if key not in self._kept]
        waiting = [key for key in freed if (job := self.watches.job(key)) is not None and _waits(job)]
        self.watches.mark(waiting)  # they have yet to be put
        return len(freed)

    def _let_go(self, due: Sequence[JobKey], seen: int, gone: list[JobKey]) -> None:
        found = self.find(list(due), [self.route(key) for key in due])
        for key in set(due) - set(found):
            self._kept.pop(key, None)
        if found:
            self.free(found, seen)
        gone += found

    def _refunded(self, keys: list[JobKey]) -> list[Reservation]:
        """The picks among them that their queues get back: those that were never granted, because an admin took the
        queue from the job first.

        A pick that was granted is never refunded, whether the job ran or not: it held room. Nor is one whose job was
        suspended, held, edited or deleted before the grant: the room was kept idle for it, and its owner would get the
        next turn at once, again and again, for nothing.
        """
        jobs = {key: job for key in keys if (job := self.watches.job(key)) is not None and _waits(job)}
        held = self.store.reservations(list(jobs)) if jobs else {}
        ungranted = [each for key, each in held.items() if each.attempt > jobs[key].attempt]
        return [each for each in ungranted if eligibility.withdrawn(each.queue, each.key.namespace, self.rules())]


def _waits(job: JobView) -> bool:
    return job.admission is None and not (job.finished or job.deleting or job.suspended or job.invalid)
