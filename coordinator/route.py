"""Where a job goes from here: a table over what the cluster says of it.

One rule: pure and level-triggered. The same state always gives the same route, so a missed event costs nothing.

    state                               entry     charge    a worker
    gone or deleting, pods occupy       -         keep      looks (deletes them)
    gone or deleting, no pod occupies   forget    free      looks, unless gone
    finished, pods occupy               -         keep      looks (cleans up)
    finished, no pod occupies           forget    free      looks (cleans up)
    suspended, admitted or occupied     -         keep      looks (takes the pods away)
    suspended, otherwise                forget    free      looks (writes Suspended)
    invalid, pods occupy                -         keep      looks (writes Failed, takes the pods away)
    invalid, no pod occupies            forget    free      looks (writes Failed)
    admitted                            -         keep      looks
    held                                forget    free      looks in a second (writes Queued), unless written
    waiting                             put       -         looks in a second (writes Queued), unless written
"""

from dataclasses import dataclass

from coordinator.views import JobView
from crds.keys import JobKey
from queues.values import Entry, Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What to do about one key: at most one of put and remove, and perhaps an offer."""

    put: Entry | None = None
    remove: bool = False
    offer: Offer | None = None
    charged: int = 0
    """The attempt it was admitted with just now, which the store must have charged; 0: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """What the pods of one job say together."""

    occupy: bool = False
    queue: str = ""
    seen: int = 0


def route(key: JobKey, job: JobView | None, pods: Pods, queued_after: float) -> Route:
    """Decide about one key; `job` is None when it is gone."""
    look = Offer(key=key, tenant=job.queue if job else pods.queue, seen=pods.seen)
    if job is None:
        return Route(offer=look) if pods.occupy else Route(remove=True)
    if job.deleting or job.finished or job.invalid:
        return Route(offer=look, remove=not pods.occupy)
    if job.suspended:
        return Route(offer=look, remove=job.admission is None and not pods.occupy)
    if job.admission is not None:
        return Route(offer=look, charged=job.admission.attempt if job.phase == "Admitted" else 0)
    if pods.occupy:
        return Route(offer=look)
    return _waiting(job, look, queued_after)


def _waiting(job: JobView, look: Offer, queued_after: float) -> Route:
    put = None if job.held else entry(job)
    if job.phase == "Queued":
        return Route(put=put, remove=job.held)
    # A job admitted within the delay is written to as Admitted straight away: one write saved on the hot path. One that
    # was suspended or sent back says something untrue until it is written, so it does not wait.
    delay = queued_after if not job.phase else 0.0
    offer = Offer(key=look.key, tenant=look.tenant, seen=look.seen, delay=delay)
    return Route(put=put, remove=job.held, offer=offer)


def entry(job: JobView) -> Entry:
    """The job as it waits."""
    return Entry(
        key=job.key,
        queue=job.queue,
        submitted=job.submitted,
        priority=job.priority,
        attempt=job.attempt + 1,
        demand=job.charge,
    )
