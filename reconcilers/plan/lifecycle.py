"""The state of a job: the actions that are possible now, before single pods are considered.

One rule: pure, a ladder of early returns, one reason each. Pods are created only on the last rung.

    DeletePodsFirst  pods are in the way: they are deleted first
    NotAdmitted      it waits or is suspended, and holds nothing
    Requeue          it has to give back the resources that it holds
    Active           it holds its resources
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from crds.torchjob import conditions
from crds.torchjob.conditions import Phase
from crds.torchjob.status import Admission
from crds.torchjob.torchjob import TorchJob
from queues.placement import pod_nodes
from queues.values import Reservation
from reconcilers.plan import not_running_reason, progress, status
from reconcilers.plan.health import shut_out
from reconcilers.plan.moment import Moment
from reconcilers.plan.progress import JobProgress
from reconcilers.pods import topology
from reconcilers.pods.grants import Grant
from reconcilers.pods.task_members import PodMember
from reconcilers.pods.topology import NodeLabels
from reconcilers.views.pod_view import PodView

GivingBack = Literal["NotRunningInTime", "ExceedsQuota", "NamespaceQuota", "WaitingForScheduler", "DomainClosed"]
"""Why a job gives its room back that cannot use it."""


@dataclass(frozen=True, slots=True)
class DeletionCause:
    """Why an admitted job loses its pods.

    The job may keep its admission and continue, which does not count as a disruption; or it is sent back to its queue.
    """

    job: TorchJob
    reason: Literal["Suspending", "Draining", "Resizing"] | GivingBack
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


@dataclass(frozen=True)
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

    @cached_property
    def progress(self) -> JobProgress:
        """How far the job has progressed."""
        return progress.assess(self.job, self.pods)


@dataclass(frozen=True, slots=True)
class Requeue:
    """The job gives back the resources that it holds, and none of its pods exists."""

    job: TorchJob
    why: Literal["QueueDrained", "Resized"] | GivingBack
    message: str = ""
    """What kept the job from running, where its status does not say it."""


_DECIDED: Mapping[str, GivingBack] = {
    status.NAMESPACE_QUOTA: "NamespaceQuota",
    status.EXCEEDS: "ExceedsQuota",
    conditions.WAITS_FOR_SCHEDULER: "WaitingForScheduler",
    conditions.DOMAIN_CLOSED: "DomainClosed",
}
"""The reasons of the condition Admitted under which a job gives its room back."""
GRACE = "its pods keep their grace period"
JobState = DeletePodsFirst | NotAdmitted | Requeue | Active


def job_state(job: TorchJob, at: Moment) -> JobState:
    """Return the state of an observed job that is not finished."""
    observation, pods = at.observation, at.observation.pods
    if job.spec.suspend:
        cause = DeletionCause(job, "Suspending", f"suspended by its owner: {GRACE}")
        waits = NotAdmitted(job, "Suspended", "Suspended", "suspended by its owner")
        return _delete_all_pods(cause, at) if pods else waits
    if job.admission is not None and observation.draining:
        cause = DeletionCause(job, "Draining", f"queue {job.admission.queue} is drained: {GRACE}")
        return _delete_all_pods(cause, at) if pods else Requeue(job, "QueueDrained")
    admission = None if observation.draining else current_admission(job, observation.reservation)
    if admission is None:
        return DeletePodsFirst(pods) if pods else _wait(job)
    # A version that did not count growths admitted the job; its pods cannot meet pods other than those with which they
    # began.
    if admission.grown is None and job.spec.is_elastic and admission.workers not in (None, job.spec.worker_count):
        cause = DeletionCause(
            job,
            "Resizing",
            f"the job is to be resized from {admission.workers} to {job.spec.worker_count} workers: {GRACE}",
        )
        return _delete_all_pods(cause, at) if pods else Requeue(job, "Resized")
    foreign = tuple(pod for pod in pods if pod.attempt != admission.attempt)
    # A job whose deadline is over ends even if such pods remain. The deadline of a previous admission ends nothing.
    is_written = at.grant is not None and at.grant.admission == admission
    is_overdue = is_written and at.deadline.is_active_over(job)
    if foreign and not is_overdue:
        return DeletePodsFirst(foreign)
    granted = at.grant if at.grant is not None and is_written else Grant(job, admission)
    active = _active(granted, pods, observation.node_labels)
    return _give_back(active, at) or active


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


def _give_back(active: Active, at: Moment) -> DeletePodsFirst | Requeue | None:
    """Return the state of a job that cannot use its resources; None if the job can use them.

    There is no room for the requests of its pods, a ResourceQuota or a gang scheduler refuses them, no node of its
    domain takes them, or they do not run in time.
    """
    job, pods, told = active.job, at.observation.pods, status.admission_message(active.job.status)
    if at.reason in _DECIDED:
        why = _DECIDED[at.reason]
        return _delete_all_pods(DeletionCause(job, why, told), at) if pods else Requeue(job, why, told)
    closes_in = at.observation.domain_closes_in
    if closes_in is not None and closes_in <= 0 and shut_out.lacks_nodes(job, active.progress, active.pods, at.now):
        message = f"no node with {active.admission.domain} takes new pods: the job may run elsewhere"
        return _delete_all_pods(DeletionCause(job, "DomainClosed", message), at)
    if at.reason == status.LATE or at.deadline.has_passed(job, active.pods):
        message = not_running_reason.describe(job, active.pods, at.observation.groups)
        blocked = told if at.reason == status.NO_MEMORY else ""
        cause = DeletionCause(job, "NotRunningInTime", blocked or message or "not all of its pods ran in time")
        return _delete_all_pods(cause, at) if pods else Requeue(job, "NotRunningInTime", message)
    return None


def _delete_all_pods(cause: DeletionCause, at: Moment) -> DeletePodsFirst:
    """Return the state in which all pods are deleted. The reason is written once, and again only if new pods
    appeared."""
    job, pods, same_reason = cause.job, at.observation.pods, at.reason in (cause.reason, status.PODS_STUCK)
    announced = same_reason and not any(pod.restart == job.status.restart_generation for pod in pods)
    return DeletePodsFirst(pods, None if job.admission is None or announced else cause)


def current_admission(job: TorchJob, reservation: Reservation | None) -> Admission | None:
    """Return the admission in force: the written one while its reservation exists, else the admission of a newer
    reservation.

    A job that was suspended and resumed before its reservation was released continues with the reservation, because the
    job is still charged for it. These reservations grant nothing:

    - one that is older than the job's attempt: it comes from a store that was restored to an earlier state;
    - one of a job that its owner holds back meanwhile, or that was sent back since;
    - one that no longer fits the job, because the owner has edited what it was picked for. The reservation may be
      for fewer workers than the job requests, where the job can be admitted with fewer;
    - one without the domain that the job requires.
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
    scope = job.spec.worker_range
    if not (workers == job.spec.worker_count if scope is None else workers in scope):
        return None
    if not reservation.serves(job.queue, job.charge_of(workers), port=job.spec.wants_port):
        return None
    if not pod_nodes.is_in(reservation.nodes, job.spec.scheduling_policy.topology.required):
        return None
    processes = {name: job.spec.processes(name) for name, task in job.spec.tasks.items() if not task.auxiliary}
    return Admission(
        queue=reservation.queue,
        attempt=reservation.attempt,
        epoch=reservation.epoch,
        charge=dict(reservation.charge),
        pick=reservation.pick,
        port=reservation.port,
        domain=pod_nodes.domain(reservation.nodes),
        workers=workers if _counts_workers(job) else None,
        grown=0 if _counts_workers(job) else None,
        nproc_per_node={name: count for name, count in processes.items() if count != 1} or None,
        success_policy=job.spec.success_policy,
    )


def _counts_workers(job: TorchJob) -> bool:
    """Return whether the number of workers of the job may change while it is admitted."""
    return job.spec.is_elastic or job.spec.worker_range is not None


def _wait(job: TorchJob) -> NotAdmitted:
    if job.admission is not None:
        return NotAdmitted(
            job, "Queued", "AdmissionRevoked", f"its reservation in queue {job.admission.queue} was taken back"
        )
    if job.spec.scheduling_policy.hold:
        return NotAdmitted(job, "Queued", "Held", "held back by its owner (schedulingPolicy.hold)")
    return NotAdmitted(job, "Queued", "Waiting", f"waits in queue {job.queue}")
