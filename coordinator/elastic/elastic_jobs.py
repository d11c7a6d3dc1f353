"""The jobs whose number of workers the leader may change, as the plan of resizes takes them.

One rule: pure. What keeps a job from any change makes it busy; what only keeps it from growing does not keep it from
giving back.

    code            the job is not changed while
    NotRunning      it does not run
    Cancelled       its owner cancels it
    Suspended       its owner suspends it
    Resizing        its number of workers changes
    Restarting      pods of it restart, or wait to be restarted
    ScaleRequest    a request of its owner is under way
    QueueDrained    its queue drains
    NotCarriedOut   no worker process has begun with the last change in time
    LeavesLate      workers that it gives back do not end in time

    code            the job does not grow while
    Held            its owner holds it
    QueueHeld       its queue is on hold
    NotAllowed      its queue does not exist any more, or is not for its namespace
    GainTooSmall    the last workers that were added have made the others slower
    Ending          a worker has succeeded, after which none is added
    PodsMissing     pods that left their nodes do not run elsewhere yet, or pods wait for room for more memory
    EndsSlowly      its workers may take longer than the setting idle_grace to save and end

A busy job with idle growth gives this growth back all the same while it does not run, restarts, or grows: its room is
not paid, and nobody knows for how long the job stays so.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator.cache.autoscaling import Autoscaling, Obstacle
from coordinator.cache.routing_rules import RoutingRules
from coordinator.cache.views import JobView
from coordinator.cache.worker_counts import WorkerCounts
from coordinator.routing import elastic_limits, eligibility, gang_queues, held_charges
from crds.keys import JobKey
from crds.resources import amounts
from crds.torchjob import resource_quota
from crds.torchjob.status import GIVE_BACK, Admission
from queues.resizing.values import ElasticJob
from queues.values import Reservation

SLOW_GROWTHS = 5
"""A job grows only where room was idle for this many times as long as its last growth took."""
_YIELDING = ("NotRunning", "Restarting", "Resizing")
"""The codes of busy jobs that give idle growth back."""
_OBSTACLES: Mapping[Obstacle, str] = {
    "": "",
    "Ending": "a worker of it has succeeded",
    "PodsMissing": "pods of it find no node, or no room for more memory",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """The facts beside the job that a plan uses."""

    rules: RoutingRules
    now: float
    idle_seconds: float
    idle_grace: float = math.inf
    held: Mapping[JobKey, Reservation] = field(default_factory=dict)
    """The reservations of the jobs for which the store may hold something else than their status says."""
    requested: Callable[[JobKey], bool] = lambda _: False
    """Returns whether a request of its owner concerns a job."""
    refused: Mapping[JobKey, float] = field(default_factory=dict)
    """The jobs whose last change no worker process has carried out, and until when they are left alone."""
    slower: Collection[JobKey] = ()
    """The jobs that the last workers made slower, and that go back to the size before."""
    late: Collection[JobKey] = ()
    """The jobs with workers that do not end in time. Nobody counts on their room any more."""


class _Elastic(NamedTuple):
    """An admitted job whose number of workers the leader may change."""

    job: JobView
    counts: WorkerCounts
    scaling: Autoscaling
    admission: Admission
    held: Reservation | None

    @property
    def granted(self) -> int:
        return self.admission.workers or 0

    @property
    def is_unwritten(self) -> bool:
        """Whether the store has granted a growth that no worker process has written."""
        return held_charges.is_unwritten_growth(self.admission, self.held)

    @property
    def size(self) -> int:
        """The workers that the store holds room for."""
        held = self.held
        is_same = held is not None and held.attempt == self.admission.attempt
        return max(self.granted, held.size) if held is not None and is_same else self.granted


def of(job: JobView, circumstances: Circumstances) -> ElasticJob | None:
    """Return a job as a plan takes it; None if the leader does not change its number of workers."""
    found = _elastic(job, circumstances)
    if found is None:
        return None
    counts, scaling = found.counts, found.scaling
    unfreed = 0 if found.is_unwritten else found.size - found.granted  # room that the store has yet to free
    busy = _busy(found, circumstances)
    going = 0 if job.key in circumstances.late else unfreed + leaving(job)
    obstacle, _ = growth_obstacle(job, circumstances)
    return ElasticJob(
        key=job.key,
        queue=found.admission.queue,
        workers=found.size,
        least=counts.least,
        wanted=counts.wanted,
        most=max(counts.wanted, _most(found, circumstances.rules)),
        unit=counts.share,
        step=counts.step,
        idle=found.held.idle if found.is_unwritten and found.held is not None else scaling.idle,
        autoscale=scaling.on,
        priority=eligibility.priority(job, circumstances.rules),
        submitted=job.submitted,
        busy=busy,
        yields=busy in _YIELDING and not found.is_unwritten,
        resting_until=float("inf") if obstacle else scaling.resized_at + scaling.every,
        idle_seconds=max(circumstances.idle_seconds, SLOW_GROWTHS * scaling.growth_seconds),
        leaving=going,
        leaving_for=_recipient(scaling) if going else None,
    )


def is_settled(job: JobView, circumstances: Circumstances) -> bool:
    """Return whether a job is part of every plan in its present state, until its view or the rules change."""
    key, scaling = job.key, job.autoscaling
    special = (circumstances.held, circumstances.refused, circumstances.late, circumstances.slower)
    pauses = scaling is None or scaling.restarts_at > circumstances.now or leaving(job)
    return not (pauses or any(key in keys for keys in special) or circumstances.requested(key))


def growth_obstacle(job: JobView, circumstances: Circumstances) -> tuple[str, str]:
    """Return the code and the sentence of the reason that keeps a job from growing by itself; empty texts if there is
    no reason.
    """
    rules, key = circumstances.rules, job.key
    queue = job.admission.queue if job.admission is not None else job.queue
    spec = rules.queues.get(queue)
    if job.held:
        return "Held", "its owner holds it (schedulingPolicy.hold)"
    if spec is not None and spec.stop_policy != "None":
        return "QueueHeld", f"queue {queue} is on hold"
    if eligibility.is_withdrawn(queue, key.namespace, rules):
        return "NotAllowed", f"queue {queue} does not exist, or is not for namespace {key.namespace}"
    if key in circumstances.slower:
        return "GainTooSmall", "the last workers that were added made the others slower"
    scaling, limit = job.autoscaling, circumstances.idle_grace
    if scaling is not None and scaling.exit_seconds > limit:
        seconds = f"{scaling.exit_seconds:g} s, are more than the setting idle_grace, {limit:g} s"
        return "EndsSlowly", f"its checkpointSeconds and the longest grace of its pods together, {seconds}"
    obstacle = scaling.obstacle if scaling is not None else ""
    return obstacle, _OBSTACLES[obstacle]


def leaving(job: JobView) -> int:
    """Return how many workers of a job have yet to go, as its status says."""
    counts, admission = job.workers, job.admission
    if counts is None or counts.autoscaling is None or admission is None:
        return 0
    scaling, granted = counts.autoscaling, admission.workers or 0
    target = scaling.in_force
    return max(scaling.leaving, granted - target.workers if target is not None else 0)


def is_removing(job: JobView) -> bool:
    """Return whether workers of a job are being removed, or save before their removal."""
    return job.autoscaling is not None and job.autoscaling.leaving > 0


def _elastic(job: JobView, circumstances: Circumstances) -> _Elastic | None:
    counts, admission = job.workers, job.admission
    over = job.finished or job.deleting or job.invalid
    if counts is None or counts.autoscaling is None or admission is None or admission.workers is None or over:
        return None
    return _Elastic(job, counts, counts.autoscaling, admission, circumstances.held.get(job.key))


def _recipient(scaling: Autoscaling) -> str | None:
    """Return the digest of the waiting job for which a job gives back; None if it gives back for no job."""
    target = scaling.target
    return target.recipient if target is not None and target.reason == GIVE_BACK else None


def _most(found: _Elastic, rules: RoutingRules) -> int:
    """Return the most workers that the job may have now: its pods must fit the ResourceQuotas of its namespace, and
    its queue of the gang scheduler."""
    quotas, share = rules.quotas.get(found.job.key.namespace, ()), found.counts.share
    if not quotas and rules.gang_rooms is None:
        return found.scaling.most

    def fits(count: int) -> bool:
        more = amounts.scale(share, count)
        return resource_quota.has_room(more, quotas) and gang_queues.has_room(found.job, more, rules)

    step = found.counts.step
    return found.size + elastic_limits.most(found.scaling.most - found.size, step, fits)


def _busy(found: _Elastic, circumstances: Circumstances) -> str:
    """Return the code of the reason that keeps a job from any change now; empty if there is no reason."""
    job, scaling, now = found.job, found.scaling, circumstances.now
    codes = {
        "Cancelled": job.cancelled,
        "Suspended": job.suspended,
        "QueueDrained": eligibility.is_draining(found.admission.queue, circumstances.rules),
        "LeavesLate": job.key in circumstances.late,
        "Resizing": scaling.change == "Resizing" or found.is_unwritten,
        "Restarting": scaling.change == "Restarting" or scaling.restarts_at > now,
        "NotRunning": job.phase != "Running",
        "ScaleRequest": circumstances.requested(job.key),
        "NotCarriedOut": circumstances.refused.get(job.key, 0.0) > now,
    }
    return next((code for code, is_so in codes.items() if is_so), "")
