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
from crds.torchjob.torchjob import TorchJob
from queues.values import Reservation
from reconcilers.plan import not_running_reason, status
from reconcilers.plan.deadline import Deadline
from reconcilers.pods import topology
from reconcilers.pods.grants import Grant
from reconcilers.pods.task_members import PodMember
from reconcilers.pods.topology import NodeLabels
from reconcilers.values import InvalidJob, Observation
from reconcilers.views.pod_view import PodView


@dataclass(frozen=True, slots=True)
class Deleted:
    """The job is deleted: nothing of it may stay."""


@dataclass(frozen=True, slots=True)
class Invalid:
    """The job cannot run."""

    job: InvalidJob


@dataclass(frozen=True, slots=True)
class Finished:
    """The job has reached its end."""

    job: TorchJob


@dataclass(frozen=True, slots=True)
class DeletionCause:
    """Why an admitted job loses its pods.

    The job may keep its admission and go on, which does not count as a disruption; or it is sent back to its queue.
    """

    job: TorchJob
    reason: Literal["Suspending", "Draining", "Resizing", "NotRunningInTime", "ExceedsQuota", "NamespaceQuota"]
    message: str


@dataclass(frozen=True, slots=True)
class DeletePodsFirst:
    """These pods must no longer exist before anything else happens; a terminating pod still exists."""

    pods: tuple[PodView, ...]
    leaving: DeletionCause | None = None
    """The change of status to write before any pod is deleted; None if it is written already."""


@dataclass(frozen=True, slots=True)
class NotAdmitted:
    """The job holds nothing."""

    job: TorchJob
    phase: Phase
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Active:
    """The job holds its resources under an admission, which may not be written yet."""

    job: TorchJob
    """The job as it was granted, without the workers that are being removed."""
    wanted: TorchJob
    """The job with the number of workers that its owner requests."""
    admission: Admission
    pods: tuple[PodView, ...]
    """The existing pods of the granted job. One whose labels were changed is shown as deleted."""
    members: Mapping[str, PodMember]
    """All pods that the job has when all that was granted runs, by name."""
    removed: tuple[PodView, ...] = ()
    """The existing pods of this admission that the job no longer has: those of removed workers, and unexpected ones,
    such as pods whose labels were changed. They are deleted, and nothing waits for their end."""


@dataclass(frozen=True, slots=True)
class Requeue:
    """The job gives back the resources that it holds, and none of its pods exists."""

    job: TorchJob
    why: Literal["QueueDrained", "Resized", "NotRunningInTime", "ExceedsQuota", "NamespaceQuota"]
    message: str = ""
    """What kept the job from running, where its status does not say it."""


GRACE = "its pods keep their grace period"
JobState = Deleted | Invalid | Finished | DeletePodsFirst | NotAdmitted | Requeue | Active


def job_state(observation: Observation, deadline: Deadline) -> JobState:
    """Return the state of the job."""
    job, pods = observation.job, observation.pods
    match job:
        case None:
            return Deleted()
        case InvalidJob():
            return Invalid(job)
    if job.is_finished:
        return Finished(job)
    if job.spec.suspend:
        cause = DeletionCause(job, "Suspending", f"suspended by its owner: {GRACE}")
        return (
            _delete_all_pods(cause, pods)
            if pods
            else NotAdmitted(job, "Suspended", "Suspended", "suspended by its owner")
        )
    if job.admission is not None and observation.draining:
        cause = DeletionCause(job, "Draining", f"queue {job.admission.queue} is drained: {GRACE}")
        return _delete_all_pods(cause, pods) if pods else Requeue(job, "QueueDrained")
    admission = None if observation.draining else current_admission(job, observation.reservation)
    if admission is None:
        return DeletePodsFirst(pods) if pods else _wait(job)
    if admission.grown is None and _is_resized(job, admission):
        cause = DeletionCause(
            job,
            "Resizing",
            f"the job is to be resized from {admission.workers} to {job.spec.worker_count} workers: {GRACE}",
        )
        return _delete_all_pods(cause, pods) if pods else Requeue(job, "Resized")
    foreign = tuple(pod for pod in pods if pod.attempt != admission.attempt)
    # A job whose deadline is over ends even if such pods remain. The deadline of a previous admission ends nothing.
    is_overdue = job.admission == admission and deadline.is_active_over(job)
    if foreign and not is_overdue:
        return DeletePodsFirst(foreign)
    active = _active(Grant(job, admission), pods, observation.node_labels)
    return _give_back(active, observation, deadline) or active


def _is_resized(job: TorchJob, admission: Admission) -> bool:
    """Return whether the owner has changed the number of workers of an elastic job.

    A version that did not count growths admitted the job; its pods cannot meet others than those they began with.
    """
    return job.spec.is_elastic and admission.workers not in (None, job.spec.worker_count)


def _active(grant: Grant, pods: tuple[PodView, ...], nodes: NodeLabels) -> Active:
    """Return the state of a job that holds its resources, with its pods."""
    members, attempt = grant.members, grant.admission.attempt
    own = tuple(members[pod.name].show(pod) for pod in pods if pod.name in members)
    return Active(
        job=grant.job,
        wanted=grant.wanted,
        admission=grant.admission,
        pods=own,
        members=topology.rank(grant.job, grant.admission, members, own, nodes),
        removed=tuple(pod for pod in pods if pod.attempt == attempt and not _may_stay(pod, members)),
    )


def _may_stay(pod: PodView, members: Mapping[str, PodMember]) -> bool:
    member = members.get(pod.name)
    return member is not None and (pod.finished or member.is_labelled(pod))


def _give_back(active: Active, observation: Observation, deadline: Deadline) -> DeletePodsFirst | Requeue | None:
    """Return the state of a job that cannot use its resources; None if it can.

    There is no room for what its pods request, a ResourceQuota refuses them, or they do not run in time.
    """
    job, pods = active.job, observation.pods
    if status.admission_reason(job.status) == status.NAMESPACE_QUOTA:
        message = status.admission_message(job.status)
        return (
            _delete_all_pods(DeletionCause(job, "NamespaceQuota", message), pods)
            if pods
            else Requeue(job, "NamespaceQuota", message)
        )
    if status.admission_reason(job.status) == status.EXCEEDS:
        message = status.admission_message(job.status)
        return (
            _delete_all_pods(DeletionCause(job, "ExceedsQuota", message), pods)
            if pods
            else Requeue(job, "ExceedsQuota", message)
        )
    if status.admission_reason(job.status) == status.LATE or deadline.has_passed(job, active.pods):
        message = not_running_reason.describe(job, active.pods, observation.groups)
        blocked = status.admission_message(job.status) if status.waits_for_memory(job.status) else ""
        cause = DeletionCause(job, "NotRunningInTime", blocked or message or "not all of its pods ran in time")
        return _delete_all_pods(cause, pods) if pods else Requeue(job, "NotRunningInTime", message)
    return None


def _delete_all_pods(cause: DeletionCause, pods: tuple[PodView, ...]) -> DeletePodsFirst:
    """Return the state in which all pods are deleted. The reason is written once, and again only if new pods
    appeared."""
    job = cause.job
    same_reason = status.admission_reason(job.status) in (cause.reason, status.PODS_STUCK)
    announced = same_reason and not any(pod.restart == job.status.restart_generation for pod in pods)
    return DeletePodsFirst(pods, None if job.admission is None or announced else cause)


def current_admission(job: TorchJob, reservation: Reservation | None) -> Admission | None:
    """Return the admission in force: the written one while its reservation exists, else that of a newer reservation.

    A job that was suspended and resumed before its reservation was released goes on with it, because the job is still
    charged for it. These reservations grant nothing:

    - one that is older than the job's attempt: it comes from a store that was restored to an earlier state;
    - one of a job that its owner holds back meanwhile, or that was sent back since;
    - one that no longer fits the job, because the owner has edited what it was picked for. It may be for fewer workers
      than the job requests, where the job can be admitted with fewer.
    """
    if reservation is None:
        return None
    written = job.admission
    if written is not None and written.attempt == reservation.attempt:
        return written
    sent_back = job.status.phase == "Queued" and reservation.attempt == job.status.attempt
    if reservation.attempt < job.status.attempt or sent_back or job.spec.scheduling_policy.hold:
        return None
    workers = reservation.size or job.spec.worker_count
    if not _is_grantable(job, workers):
        return None
    if not reservation.serves(job.queue, job.charge_of(workers), port=job.spec.wants_port):
        return None
    return Admission(
        queue=reservation.queue,
        attempt=reservation.attempt,
        epoch=reservation.epoch,
        charge=dict(reservation.charge),
        pick=reservation.pick,
        port=reservation.port,
        workers=workers if _counts_workers(job) else None,
        grown=0 if _counts_workers(job) else None,
        nproc_per_node=_processes(job),
        success_policy=job.spec.success_policy,
    )


def _processes(job: TorchJob) -> dict[str, int] | None:
    """Return the number of processes that torchrun starts in a pod of each task with ranks, where that is not 1."""
    processes = {name: job.spec.processes(name) for name, task in job.spec.tasks.items() if not task.auxiliary}
    return {name: count for name, count in processes.items() if count != 1} or None


def _counts_workers(job: TorchJob) -> bool:
    """Return whether the number of workers of the job may change while it is admitted."""
    return job.spec.is_elastic or job.spec.worker_range is not None


def _is_grantable(job: TorchJob, workers: int) -> bool:
    """Return whether the job can be admitted with a number of workers."""
    scope = job.spec.worker_range
    return workers == job.spec.worker_count if scope is None else workers in scope


def _wait(job: TorchJob) -> NotAdmitted:
    if job.admission is not None:
        return NotAdmitted(
            job, "Queued", "AdmissionRevoked", f"its reservation in queue {job.admission.queue} was taken back"
        )
    if job.spec.scheduling_policy.hold:
        return NotAdmitted(job, "Queued", "Held", "held back by its owner (schedulingPolicy.hold)")
    return NotAdmitted(job, "Queued", "Waiting", f"waits in queue {job.queue}")
