"""The state of a job: what may be done for it now, before single pods are considered.

One rule: pure, a ladder of early returns, one reason each. Pods are created only on the last rung.

    Deleted          the object is deleted, or another object has its name: nothing of the job may stay
    Invalid          the object cannot run: it says so and holds nothing
    Finished         Succeeded or Failed: clean up
    DeletePodsFirst  pods are in the way: they are deleted first
    NotAdmitted      it waits or is suspended, and holds nothing
    Requeue          it has to give back the resources that it holds
    Active           it holds its resources
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
    """The job is deleted: nothing of it may stay."""


@dataclass(frozen=True, slots=True)
class Broken:
    """The job cannot run."""

    job: InvalidJob


@dataclass(frozen=True, slots=True)
class Ended:
    """The job has reached its end."""

    job: TorchJob


@dataclass(frozen=True, slots=True)
class Leaving:
    """Why an admitted job loses its pods.

    The job may keep its admission and go on, which does not count as a disruption; or it is sent back to its queue.
    """

    job: TorchJob
    reason: Literal["Suspending", "Draining", "Resizing", "NotRunningInTime", "ExceedsQuota", "NamespaceQuota"]
    message: str


@dataclass(frozen=True, slots=True)
class Vacate:
    """These pods must no longer exist before anything else happens; a terminating pod still exists."""

    pods: tuple[PodView, ...]
    leaving: Leaving | None = None
    """The change of status to write before any pod is deleted; None if it is written already."""


@dataclass(frozen=True, slots=True)
class Idle:
    """The job holds nothing."""

    job: TorchJob
    phase: Phase
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Run:
    """The job holds its resources under an admission, which may not be written yet."""

    job: TorchJob
    admission: Admission
    pods: tuple[PodView, ...]
    members: Mapping[str, Member]
    """All pods that the job has when all of it runs, by name."""


@dataclass(frozen=True, slots=True)
class Back:
    """The job gives back the resources that it holds, and none of its pods exists."""

    job: TorchJob
    why: Literal["QueueDrained", "Resized", "NotRunningInTime", "ExceedsQuota", "NamespaceQuota"]
    message: str = ""
    """What kept the job from running, where its status does not say it."""


GRACE = "its pods are given their grace"
Course = Gone | Broken | Ended | Vacate | Idle | Back | Run


def decide(observation: Observation, deadline: Deadline) -> Course:
    """Return the state of the job."""
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
    if (workers := _asked(job)) != (admission.workers or workers):
        leaving = Leaving(job, "Resizing", f"to be resized from {admission.workers} to {workers} workers: {GRACE}")
        return _emptied(leaving, pods) if pods else Back(job, "Resized")
    expected = task_members.members(job, admission.attempt)
    foreign = tuple(pod for pod in pods if pod.attempt != admission.attempt or pod.name not in expected)
    if foreign and not deadline.ran_out(job):
        return Vacate(foreign)
    return _given_back(job, observation, deadline) or Run(job, admission, pods, expected)


def _given_back(job: TorchJob, observation: Observation, deadline: Deadline) -> Vacate | Back | None:
    """Return the state of a job that cannot use its resources; None if it can.

    There is no room for what its pods request, a ResourceQuota refuses them, or they do not run in time.
    """
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
    """Return the state in which all pods are deleted. The reason is written once, and again only if new pods
    appeared."""
    job = leaving.job
    same_reason = status.reason(job.status) in (leaving.reason, status.PODS_STUCK)
    announced = same_reason and not any(pod.restart == job.status.restart_generation for pod in pods)
    return Vacate(pods, None if job.admission is None or announced else leaving)


def granted(job: TorchJob, reservation: Reservation | None) -> Admission | None:
    """Return the admission in force: the written one while its reservation exists, else that of a newer reservation.

    A job that was suspended and resumed before its reservation was released goes on with it, because the job is still
    charged for it. These reservations grant nothing:

    - one that is older than the job's attempt: it comes from a store that was restored to an earlier state;
    - one of a job that its owner holds back meanwhile, or that was sent back since;
    - one that no longer fits the job, because the owner has edited what it was picked for.
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
    """Return the number of processes that torchrun starts in a pod of each task with ranks, where that is not 1."""
    processes = {name: job.spec.processes(name) for name, task in job.spec.tasks.items() if not task.auxiliary}
    return {name: count for name, count in processes.items() if count != 1} or None


def _asked(job: TorchJob) -> int | None:
    """Return the current number of workers of an elastic job; None where the number cannot change."""
    elastic = job.spec.torch_elastic_policy is not None and WORKER in job.spec.tasks
    return job.spec.tasks[WORKER].num_tasks if elastic else None


def _waiting(job: TorchJob) -> Idle:
    if job.admission is not None:
        return Idle(job, "Queued", "AdmissionRevoked", f"its room in queue {job.admission.queue} was taken back")
    if job.spec.scheduling_policy.hold:
        return Idle(job, "Queued", "Held", "held back by its owner (schedulingPolicy.hold)")
    return Idle(job, "Queued", "Waiting", f"waits in queue {job.queue}")
