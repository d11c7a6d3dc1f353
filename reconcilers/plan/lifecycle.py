"""Where a job stands: what it may do now, before anything is said about single pods.

One rule: pure, a ladder of early returns, one reason each. Pods are made only on the last rung.

    Gone      the object is deleted, or another one has its name: nothing of it may stay
    Broken    the object cannot be run: it says so and holds nothing
    Ended     Succeeded or Failed: clean up
    Vacate    pods are in the way: they go first
    Idle      it waits or is suspended, and holds nothing
    Back      it has to give back the room that it holds
    Run       it holds its room
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from crds.torchjob.conditions import Phase
from crds.torchjob.status import Admission
from crds.torchjob.tasks import WORKER
from crds.torchjob.torchjob import TorchJob
from queues.values import Reservation
from reconcilers.plan import not_running_reason, status
from reconcilers.plan.deadline import Deadline
from reconcilers.pods import task_members
from reconcilers.pods.task_members import Member
from reconcilers.values import InvalidJob, Observation
from reconcilers.views.pod_view import PodView


@dataclass(frozen=True, slots=True)
class Gone:
    """Nothing of it may stay."""


@dataclass(frozen=True, slots=True)
class Broken:
    """It cannot be run."""

    job: InvalidJob


@dataclass(frozen=True, slots=True)
class Ended:
    """It has reached its end."""

    job: TorchJob


@dataclass(frozen=True, slots=True)
class Leaving:
    """Why a job that holds room loses its pods: it may still keep it, and whoever lets it go on meanwhile has not
    disrupted it; or it is to be sent back."""

    job: TorchJob
    reason: Literal["Suspending", "Draining", "Resizing", "NotRunningInTime", "ExceedsQuota", "NamespaceQuota"]
    message: str


@dataclass(frozen=True, slots=True)
class Vacate:
    """These pods must be gone before anything else happens; a terminating one is not gone."""

    pods: tuple[PodView, ...]
    leaving: Leaving | None = None
    """To be written before any of them is touched."""


@dataclass(frozen=True, slots=True)
class Idle:
    """It holds nothing."""

    job: TorchJob
    phase: Phase
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Run:
    """It holds its room under an admission, which may not be written yet."""

    job: TorchJob
    admission: Admission
    pods: tuple[PodView, ...]
    members: Mapping[str, Member]
    """All pods it has when all of it runs, by name."""


@dataclass(frozen=True, slots=True)
class Back:
    """It gives back the room it holds, and no pod of it is left."""

    job: TorchJob
    why: Literal["QueueDrained", "Resized", "NotRunningInTime", "ExceedsQuota", "NamespaceQuota"]
    message: str = ""
    """What kept it from running, as far as its status does not say so."""


GRACE = "its pods are given their grace"
Course = Gone | Broken | Ended | Vacate | Idle | Back | Run


def decide(observation: Observation, deadline: Deadline) -> Course:
    """Where the job stands."""
    job, pods = observation.job, observation.pods
    match job:
        case None:
            return Gone()
        case InvalidJob():
            return Broken(job)
    if job.finished:
        return Ended(job)
    if job.spec.suspend:
        leaving = Leaving(job, "Suspending", f"suspended by its owner: {GRACE}")
        return _emptied(leaving, pods) if pods else Idle(job, "Suspended", "Suspended", "suspended by its owner")
    if job.admission is not None and observation.draining:
        leaving = Leaving(job, "Draining", f"queue {job.admission.queue} is drained: {GRACE}")
        return _emptied(leaving, pods) if pods else Back(job, "QueueDrained")
    admission = None if observation.draining else granted(job, observation.reservation)
    if admission is None:
        return Vacate(pods) if pods else _waiting(job)
    if (asked := _asked(job)) != (admission.workers or asked):
        leaving = Leaving(job, "Resizing", f"to be resized from {admission.workers} to {asked} workers: {GRACE}")
        return _emptied(leaving, pods) if pods else Back(job, "Resized")
    expected = task_members.members(job, admission.attempt)
    foreign = tuple(pod for pod in pods if pod.attempt != admission.attempt or pod.name not in expected)
    if foreign and not deadline.ran_out(job):
        return Vacate(foreign)
    return _given_back(job, observation, deadline) or Run(job, admission, pods, expected)


def _given_back(job: TorchJob, observation: Observation, deadline: Deadline) -> Vacate | Back | None:
    """A job that cannot use the room it holds: there is no room for what its pods ask for, a ResourceQuota refuses
    them, or they do not run in time."""
    pods = observation.pods
    if status.reason(job.status) == status.NAMESPACE_QUOTA:
        why = status.said(job.status)
        return _emptied(Leaving(job, "NamespaceQuota", why), pods) if pods else Back(job, "NamespaceQuota", why)
    if status.reason(job.status) == status.EXCEEDS:
        why = status.said(job.status)
        return _emptied(Leaving(job, "ExceedsQuota", why), pods) if pods else Back(job, "ExceedsQuota", why)
    if status.reason(job.status) == status.LATE or deadline.passed(job, pods):
        why = not_running_reason.of(job, pods, observation.groups)
        leaving = Leaving(job, "NotRunningInTime", why or "not all of it ran in time")
        return _emptied(leaving, pods) if pods else Back(job, "NotRunningInTime", why)
    return None


def _emptied(leaving: Leaving, pods: tuple[PodView, ...]) -> Vacate:
    """All pods go; said once, and as often as there are new ones."""
    job = leaving.job
    said = status.reason(job.status) in (leaving.reason, status.PODS_STUCK)
    known = said and not any(pod.restart == job.status.restart_generation for pod in pods)
    return Vacate(pods, None if job.admission is None or known else leaving)


def granted(job: TorchJob, reservation: Reservation | None) -> Admission | None:
    """The admission that holds now: the written one while its reservation stands, else a newer reservation's.

    A job that was suspended and resumed before its reservation was released goes on with it: it is still charged for
    that room. An older reservation than the job has seen comes from a store that went back in time, and grants nothing.
    Nor does one of a job that its owner holds back meanwhile, that was sent back since, or whose owner has edited what
    it was picked for.
    """
    if reservation is None:
        return None
    written = job.admission
    if written is not None and written.attempt == reservation.attempt:
        return written
    sent_back = job.status.phase == "Queued" and reservation.attempt == job.status.attempt
    if reservation.attempt < job.status.attempt or sent_back or job.spec.scheduling_policy.hold:
        return None
    if not reservation.serves(job.queue, job.charge, port=job.spec.wants_port):
        return None
    return Admission(
        queue=reservation.queue,
        attempt=reservation.attempt,
        epoch=reservation.epoch,
        charge=dict(reservation.charge),
        pick=reservation.pick,
        port=reservation.port,
        workers=_asked(job),
        nproc_per_node=_processes(job),
    )


def _processes(job: TorchJob) -> dict[str, int] | None:
    """How many processes torchrun starts in a pod of each task with ranks, where that is not 1."""
    found = {name: job.spec.processes(name) for name, task in job.spec.tasks.items() if not task.auxiliary}
    return {name: count for name, count in found.items() if count != 1} or None


def _asked(job: TorchJob) -> int | None:
    """How many workers an elastic job is to have now; None where that cannot change."""
    elastic = job.spec.torch_elastic_policy is not None and WORKER in job.spec.tasks
    return job.spec.tasks[WORKER].num_tasks if elastic else None


def _waiting(job: TorchJob) -> Idle:
    if job.admission is not None:
        return Idle(job, "Queued", "AdmissionRevoked", f"its room in queue {job.admission.queue} was taken back")
    if job.spec.scheduling_policy.hold:
        return Idle(job, "Queued", "Held", "held back by its owner (schedulingPolicy.hold)")
    return Idle(job, "Queued", "Waiting", f"waits in queue {job.queue}")
