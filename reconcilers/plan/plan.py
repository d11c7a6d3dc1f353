"""The plan of a job: from an observation to actions.

One rule: pure; the plan is empty when nothing is left to do, and every action in it is safe to repeat.
"""

import math
from dataclasses import replace
from datetime import UTC, datetime

from crds.torchjob import conditions
from crds.torchjob.status import Admission, TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import backoff, gangs, lifecycle, over_quota, progress, status
from reconcilers.plan.advance import Advance
from reconcilers.plan.deadline import Deadline
from reconcilers.plan.lifecycle import Active, Deleted, DeletePodsFirst, Finished, Invalid, NotAdmitted, Requeue
from reconcilers.plan.pod_deletion import PodDeletion
from reconcilers.plan.recovery import RecoveryContext, is_about_requests
from reconcilers.pods import measure, task_members
from reconcilers.pods.measure import Excess
from reconcilers.settings import ReconcileSettings
from reconcilers.values import (
    Action,
    Blocker,
    DeleteJob,
    DeleteService,
    EmitEvent,
    InvalidJob,
    Observation,
    OverQuota,
    Plan,
    RaiseCharge,
    WriteStatus,
    earliest,
)
from reconcilers.views import pod_view
from reconcilers.views.pod_view import PodView

Pods = tuple[PodView, ...]
TRY_AGAIN = 60.0
"""Seconds after which pods that a ResourceQuota refuses are tried again while the others of the job run."""


def plan(observation: Observation, settings: ReconcileSettings, now: datetime) -> Plan:
    """Return the next actions for one key, in order."""
    job = observation.job
    deletion = PodDeletion(now.timestamp(), settings.dead_node_grace, observation.dead_nodes, settings.longest_grace)
    if observation.no_room or (isinstance(job, TorchJob) and status.admission_reason(job.status) == status.EXCEEDS):
        deletion = deletion.for_uncharged()
    if isinstance(job, TorchJob) and not job.is_finished:
        # 1. A success stays a success, even if the owner has suspended the job or its resources were taken back since.
        if has_succeeded(job, observation.pods):
            after = status.finish(job, "Succeeded", "Succeeded", "all is done", now)
            return _finish(job, observation, after, deletion)
        # 2. The API server refuses the pods as they are.
        if observation.refused:
            after = status.finish(job, "Failed", "InvalidTemplate", observation.refused, now)
            return _finish(job, observation, after, deletion)
    # 3. Everything else depends on the state of the job.
    result = _plan_by_state(observation, settings, deletion, now)
    actions = result.actions + deletion.grace_events(result.actions)
    return Plan(actions, earliest((result.requeue_after, deletion.next_change(observation.pods))), result.unexplained)


def _report_stuck_pods(observation: Observation, deletion: PodDeletion, now: datetime) -> tuple[Action, ...]:
    """Report pods that finalizers keep although the job should have none: as an Event, and in the status of an admitted
    job."""
    job, stuck = observation.job, deletion.stuck_pods(observation.pods)
    if not stuck:
        return ()
    message = deletion.describe_stuck(stuck)
    # The Event's name is made from its text, so a repetition creates no second one.
    events = (EmitEvent(status.PODS_STUCK, message, warning=True),)
    if not isinstance(job, TorchJob) or job.is_finished or job.admission is None:
        return events
    if status.is_blocked(job.status):
        return events if status.admission_reason(job.status) in status.SENT_BACK else ()
    return _write_status(job, status.block_on_stuck_pods(job, message, now), observation.pods) + events


def _plan_by_state(observation: Observation, settings: ReconcileSettings, deletion: PodDeletion, now: datetime) -> Plan:
    deadline = _deadline(observation, settings, now)
    groups = gangs.delete_groups(observation.groups)
    match lifecycle.job_state(observation, deadline):
        case Deleted():
            return _plan_deleted(observation, deletion, now)
        case Invalid(invalid):
            return _plan_invalid(invalid, observation, deletion, now)
        case Finished(ended):
            return _plan_finished(ended, observation, deletion, now)
        case DeletePodsFirst(in_the_way, deletion_cause):
            if deletion_cause is None:
                deletions = deletion.delete(in_the_way, shorten=True)
                return Plan(
                    deletions + _report_stuck_pods(observation, deletion, now),
                    _seconds_to_deadline(observation, deadline),
                )
            after = status.vacate(deletion_cause.job, deletion_cause.reason, deletion_cause.message, now)
            return Plan(
                _write_status(deletion_cause.job, after, in_the_way) + deletion.delete(in_the_way, shorten=True)
            )
        case NotAdmitted() as state:
            return Plan(_plan_not_admitted(state, now) + groups)
        case Requeue() as requeue:
            after = _requeue_status(requeue, settings, now)
            # A ResourceQuota may count the job's services, too, and does not show to whom they belong.
            services = _delete_all_services(requeue.job, ()) if requeue.why == "NamespaceQuota" else ()
            return Plan(services + _write_status(requeue.job, after, ()) + groups + _requeue_events(after))
        case Active() as active:
            return _plan_active(active, observation, settings, deletion, deadline)


def _plan_deleted(observation: Observation, deletion: PodDeletion, now: datetime) -> Plan:
    """Delete the pods of a deleted job. They keep their own grace, and the queue pays for it; while the queue is being
    drained, the grace is limited to the setting."""
    graceful = deletion if observation.draining else replace(deletion, longest=math.inf)
    deletions = graceful.delete(observation.pods, shorten=True) + _report_stuck_pods(observation, deletion, now)
    return Plan(_delete_services(observation.pods) + deletions + gangs.delete_groups(observation.groups))


def _seconds_to_deadline(observation: Observation, deadline: Deadline) -> float | None:
    """Return the seconds until the job's deadline; None if the deadline has passed or the job has none."""
    remaining = deadline.active_remaining(observation.job) if isinstance(observation.job, TorchJob) else None
    return remaining if remaining is not None and remaining > 0 else None


def _deadline(observation: Observation, settings: ReconcileSettings, now: datetime) -> Deadline:
    job = observation.job
    pause = backoff.remaining_pause(job.status, settings, now) if isinstance(job, TorchJob) else 0.0
    ready_again = None if observation.ready_again is None else datetime.fromtimestamp(observation.ready_again, UTC)
    return Deadline(settings.admission_timeout if settings.make_pods else 0.0, now, pause, ready_again)


def _requeue_events(after: TorchJobStatus) -> tuple[Action, ...]:
    """Return the Event for a job that was sent back because of its own pods; its owner looks for the reason there."""
    condition = conditions.find(after.conditions, "Queued")
    if condition is None or condition.reason not in status.SENT_BACK:
        return ()
    if condition.reason == status.EXCEEDS:
        return (EmitEvent("ExceedsQuota", condition.message, warning=True),)
    if condition.reason == status.NAMESPACE_QUOTA:
        return (EmitEvent("NamespaceQuota", condition.message, warning=True),)
    return (EmitEvent("NotRunningInTime", condition.message, warning=True),)


def _requeue_status(requeue: Requeue, settings: ReconcileSettings, now: datetime) -> TorchJobStatus:
    if requeue.why == "ExceedsQuota":
        return status.requeue_exceeding(requeue.job, requeue.message, now)
    if requeue.why == "NamespaceQuota":
        waits = requeue.job.status.queue
        return over_quota.send_back(requeue.job, waits.refused_by if waits else None, requeue.message, now)
    if requeue.why != "NotRunningInTime":
        return status.requeue(requeue.job, requeue.why, now)
    return status.requeue_late(requeue.job, settings.admission_backoff, settings.admission_tries, now, requeue.message)


def _plan_active(
    active: Active, observation: Observation, settings: ReconcileSettings, deletion: PodDeletion, deadline: Deadline
) -> Plan:
    """Return the plan of a job that holds its resources."""
    job, now = active.job, deadline.now
    # 0. The deadline holds whatever else blocks the job: resources may be lent to it only until then.
    remaining = deadline.active_remaining(job) if job.admission == active.admission else None
    if remaining is not None and remaining <= 0:
        message = f"ran longer than activeDeadlineSeconds {job.spec.active_deadline_seconds}"
        return _finish(job, observation, status.finish(job, "Failed", "DeadlineExceeded", message, now), deletion)
    if observation.over_quota is not None and job.admission == active.admission:
        return _plan_over_quota(active, observation, observation.over_quota, deletion, now)
    # An object cannot be created now: the status says so.
    if observation.blocker is not None and not is_about_requests(observation.blocker):
        return Plan(_write_status(job, _block(job, observation.blocker, now), active.pods), remaining)
    # 1. The fence: no pods are created before the admission is in the cluster.
    if job.admission != active.admission:
        admission = _bind_admission(active, settings)
        after = status.admit(job, admission, now)
        begun = replace(active, job=job.model_copy(update={"status": after}), admission=admission)
        advance = Advance(run=begun, observation=observation, settings=settings, now=now)
        return Plan(_write_status(job, after, active.pods) + advance.actions())
    # 2. Its pods may request more than it is charged for: that is settled before another pod is created.
    excess = measure.find_excess(job, active.admission.charge, active.pods)
    if excess is not None:
        return _plan_excess(active, excess, observation, deletion, now)
    # 3. Failures of its pods end the job or set it back; a restart that is under way goes on.
    recovery = _recovery_context(active, observation, settings, deletion, now).recover()
    if recovery.after is not None and recovery.ended:
        return _finish(job, observation, recovery.after, deletion)
    pauses = backoff.next_change(job.status if recovery.after is None else recovery.after, settings, now)
    requeue_after = earliest(
        (remaining, deadline.remaining(job, active.pods), recovery.requeue_after, observation.next_dead, pauses)
    )
    if recovery.after is not None:
        return Plan(recovery.before + _write_status(job, recovery.after, active.pods) + recovery.actions, requeue_after)
    if recovery.blocked:
        return Plan(recovery.actions, requeue_after, recovery.unexplained)
    # 4. Missing pods are created, and the status follows the existing ones.
    stuck = bool(deletion.stuck_pods(active.pods))
    advance = Advance(run=active, observation=observation, settings=settings, now=now, stuck=stuck)
    # Pods of completed tasks take the resources of the tasks after them, which wait until these pods no longer exist.
    passed = {task_type.lower() for task_type in advance.progress.passed}
    over = tuple(pod for pod in active.pods if pod.task in passed and pod_view.occupies(pod))
    steps = deletion.delete(over) if over else advance.actions()
    actions = _write_status(job, advance.status(), active.pods) + recovery.actions + steps
    return Plan(actions, earliest((requeue_after, advance.groups.requeue_after)))


def _plan_excess(
    active: Active, excess: Excess, observation: Observation, deletion: PodDeletion, now: datetime
) -> Plan:
    """Charge the job for what its pods request, or send it back if there is no room for that."""
    job = active.job
    if excess.uncountable:
        message = f"{excess}; that is more than a job can be charged for"
        return _finish(job, observation, status.finish(job, "Failed", "InvalidTemplate", message, now), deletion)
    if observation.no_room is None:
        written = _write_status(job, status.record_charge(job, excess.charge, excess.measured), active.pods)
        return Plan((RaiseCharge(active.admission.attempt, excess.charge), *written), requeue_after=0.0)
    message = excess.describe_refusal(active.admission.queue, observation.no_room)
    after = status.vacate(job, status.EXCEEDS, message, now).model_copy(update={"measured": excess.measured})
    return Plan(_write_status(job, after, active.pods) + deletion.delete(active.pods))


def _plan_over_quota(
    active: Active, observation: Observation, refused: OverQuota, deletion: PodDeletion, now: datetime
) -> Plan:
    """Send a job back if a ResourceQuota refuses pods that it needs. A job that can run with its existing pods keeps
    its resources, and the other pods are tried again later."""
    job = active.job
    if over_quota.may_run(job, active.pods):
        blocker = Blocker(status.PODS_FORBIDDEN, refused.message)
        return Plan(_write_status(job, _block(job, blocker, now), active.pods), TRY_AGAIN)
    queue = over_quota.count_refusal(job, refused)
    if active.pods:
        after = status.vacate(job, status.NAMESPACE_QUOTA, refused.message, now).model_copy(update={"queue": queue})
        return Plan(_write_status(job, after, active.pods) + deletion.delete(active.pods))
    after = over_quota.send_back(job, queue.refused_by, refused.message, now)
    groups = gangs.delete_groups(observation.groups)
    return Plan(_delete_all_services(job, ()) + _write_status(job, after, ()) + groups + _requeue_events(after))


def _block(job: TorchJob, blocker: Blocker, now: datetime) -> TorchJobStatus:
    """Return the status of a blocked job. If groups are not let in and pods beside them are forbidden, only the groups
    are reported: every reconcile meets both, and the two reports would alternate."""
    about_pods = blocker.reason in (status.PODS_FORBIDDEN, status.NAME_TAKEN)
    return (
        status.observe_generation(job)
        if about_pods and status.is_about_groups(job.status)
        else status.block(job, blocker, now)
    )


def _bind_admission(active: Active, settings: ReconcileSettings) -> Admission:
    """Return a new admission with the name of the scheduler that binds its pods, which stays for the admission's
    lifetime."""
    scheduler = active.job.spec.scheduling_policy.gang_scheduler or settings.gang_scheduler
    return active.admission.model_copy(update={"gang_scheduler": scheduler})


def _recovery_context(
    active: Active, observation: Observation, settings: ReconcileSettings, deletion: PodDeletion, now: datetime
) -> RecoveryContext:
    return RecoveryContext(
        job=active.job,
        pods=active.pods,
        members=active.members,
        observation=observation,
        settings=settings,
        deletion=deletion,
        now=now,
    )


def has_succeeded(job: TorchJob, pods: Pods) -> bool:
    """Return whether the pods of the newest admission have completed the job."""
    if job.admission is None or not (job.status.stages or any(pod.phase == "Succeeded" for pod in pods)):
        return False
    job_progress = progress.assess(job, (pod for pod in pods if pod.attempt == job.admission.attempt))
    decisive = task_members.decisive_tasks(job.spec)
    return bool(decisive) and all(map(job_progress.done, decisive))


def _finish(job: TorchJob, observation: Observation, after: TorchJobStatus, deletion: PodDeletion) -> Plan:
    """End the job. The services are deleted first, because their existence is not recorded anywhere else. The status is
    written next, and the pods that prove it are deleted last."""
    pods = observation.pods
    to_delete = _leftovers(job.spec.clean_pod_policy, after, pods)
    uids = {pod.uid for pod in to_delete}
    remaining = tuple(pod for pod in pods if pod.uid not in uids)
    services = _delete_all_services(job, pods) if job.spec.clean_pod_policy != "None" else ()
    groups = gangs.delete_groups(observation.groups)
    return Plan(
        services
        + _write_status(job, after, remaining)
        + deletion.delete(to_delete, shorten=True)
        + groups
        + _failure_events(after)
    )


def _failure_events(after: TorchJobStatus) -> tuple[Action, ...]:
    """Return the Event with the reason of a failure: the job's conditions disappear with the job, an Event stays for a
    while."""
    condition = conditions.find(after.conditions, "Failed")
    return (
        (EmitEvent(condition.reason, condition.message, warning=True),)
        if condition is not None and after.phase == "Failed"
        else ()
    )


def _plan_finished(job: TorchJob, observation: Observation, deletion: PodDeletion, now: datetime) -> Plan:
    """Clean up after a finished job, and delete the job itself when its time to live is over."""
    remaining = _seconds_left(job.status.completion_time, job.spec.ttl_seconds_after_finished, now)
    if remaining is not None and remaining <= 0:
        return Plan((DeleteJob(),))
    # In a drained queue, and beyond activeDeadlineSeconds, no pod keeps its resources, even if the job's owner wants
    # its pods kept.
    policy = job.spec.clean_pod_policy
    active = Deadline(0.0, now).active_remaining(job)
    is_returning = observation.draining or (active is not None and active <= 0)
    leftovers = _leftovers("Running" if is_returning and policy == "None" else policy, job.status, observation.pods)
    deletions = deletion.delete(leftovers, shorten=True) + _report_stuck_pods(observation, deletion, now)
    has_occupying_pods = any(pod_view.occupies(pod) for pod in observation.pods)
    requeue_after = earliest((remaining, active if has_occupying_pods and not is_returning else None))
    return Plan(_observe_spec(job) + deletions + gangs.delete_groups(observation.groups), requeue_after=requeue_after)


def _observe_spec(job: TorchJob) -> tuple[Action, ...]:
    """Record the newest spec as observed; the counts of pods stay as they are."""
    changed = status.patch_from(job.status, status.observe_generation(job))
    return (WriteStatus({"status": changed}, job.metadata.resource_version),) if changed else ()


def _seconds_left(since: datetime | None, seconds: int | None, now: datetime) -> float | None:
    """Return the seconds that are left of a time span; None if there is no such span."""
    if since is None or seconds is None:
        return None
    return seconds - (now - since).total_seconds()


def _leftovers(policy: str, after: TorchJobStatus, pods: Pods) -> Pods:
    """Return the pods that are deleted at the job's end. A failed job keeps no pod that takes resources."""
    if policy == "All":
        return pods
    if policy == "Running" or after.phase == "Failed":
        return tuple(pod for pod in pods if pod_view.occupies(pod))
    return ()


def _plan_not_admitted(state: NotAdmitted, now: datetime) -> tuple[Action, ...]:
    job = state.job
    if job.status.phase == state.phase and job.admission is None:
        return _write_status(job, status.observe_generation(job), ())
    return _write_status(job, status.release(job, state.phase, state.reason, state.message, now), ())


def _plan_invalid(job: InvalidJob, observation: Observation, deletion: PodDeletion, now: datetime) -> Plan:
    """Report an invalid job, delete its pods, and delete the job itself when its time to live is over."""
    ended = job.status.completion_time if job.status.is_finished else None
    remaining = _seconds_left(ended, job.time_to_live, now)
    if remaining is not None and remaining <= 0:
        return Plan((DeleteJob(),))
    writes = () if job.status.is_finished else _report_invalid(job, now)
    deletions = deletion.delete(observation.pods, shorten=True) + _report_stuck_pods(observation, deletion, now)
    return Plan(writes + deletions + gangs.delete_groups(observation.groups), remaining)


def _report_invalid(job: InvalidJob, now: datetime) -> tuple[Action, ...]:
    message = "; ".join(map(str, job.problems))
    after = status.enter_status(job.status, job.generation, "Failed", "InvalidSpec", message, now)
    after = after.model_copy(update={"completion_time": now})
    change = dict.fromkeys(job.unreadable) | status.patch_from(job.status, after)
    return (WriteStatus({"status": change}, job.resource_version),)


def _write_status(job: TorchJob, after: TorchJobStatus, pods: Pods) -> tuple[Action, ...]:
    # Pods of an earlier restart do not count any more.
    current = (pod for pod in pods if pod.restart == after.restart_generation)
    counts = status.count_pods(job, current) | status.upstream_task_counts(job, after.stages)
    counted = after.model_copy(update={"task_statuses": counts})
    changed = status.patch_from(job.status, counted)
    return (WriteStatus({"status": changed}, job.metadata.resource_version),) if changed else ()


def _delete_services(pods: Pods) -> tuple[Action, ...]:
    return tuple(DeleteService(pod.service) for pod in pods if pod.service and not pod.deleting)


def _delete_all_services(job: TorchJob, pods: Pods) -> tuple[Action, ...]:
    """Delete all services that may exist: if a rank 0 is missing, nothing shows whether it had one."""
    names = {pod.name for pod in pods}
    unseen = (name for name in task_members.lead_pods(job) if name not in names)
    return tuple(map(DeleteService, (*(pod.service for pod in pods if pod.service), *unseen)))
