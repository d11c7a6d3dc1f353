"""The plan of a job: from an observation to actions.

One rule: pure; the plan is empty when nothing is left to do, and every action in it is safe to repeat.
"""

from dataclasses import replace
from datetime import UTC, datetime

from crds.torchjob import conditions
from crds.torchjob.status import Admission, TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import backoff, ending, gangs, lifecycle, over_quota, status
from reconcilers.plan.advance import Advance
from reconcilers.plan.charges import settlement
from reconcilers.plan.deadline import Deadline
from reconcilers.plan.health import unfinished
from reconcilers.plan.in_place import choice, interruptions
from reconcilers.plan.lifecycle import (
    Active,
    Deleted,
    DeletePodsFirst,
    DeletionCause,
    Finished,
    Invalid,
    NotAdmitted,
    Requeue,
)
from reconcilers.plan.pod_deletion import PodDeletion
from reconcilers.plan.recovery import Recovery, RecoveryContext, is_about_requests
from reconcilers.plan.scale_requests import current, steps
from reconcilers.plan.scale_requests.request_status import RequestPlan
from reconcilers.plan.scaling import growth
from reconcilers.plan.scaling.resize import find_resize
from reconcilers.plan.scaling.steps import next_step
from reconcilers.plan.worlds import checkpoints
from reconcilers.pods.grants import Grant
from reconcilers.settings import ReconcileSettings
from reconcilers.values import (
    Action,
    Blocker,
    DeletePods,
    EmitEvent,
    Observation,
    OverQuota,
    PatchObject,
    Plan,
    RaiseCharge,
    earliest,
)
from reconcilers.views import pod_history, pod_view

TRY_AGAIN = 60.0
"""Seconds after which pods that a ResourceQuota refuses are tried again while the others of the job run."""
SHORTEST_PAUSE = 1.0
"""The shortest pause, in seconds, before a request to recreate containers is made again."""


def plan(observation: Observation, settings: ReconcileSettings, now: datetime) -> Plan:
    """Return the next actions for one key, in order."""
    pods, settled_in = pod_history.settle(observation.pods, now.timestamp())
    observation = interruptions.show(replace(observation, pods=pods))
    requests = _plan_requests(observation, settings, now)
    if requests.actions:  # they may change the job, or what its pods are for
        return Plan(requests.actions, 0.0)
    result = _plan_job(observation, settings, now)
    return replace(result, requeue_after=earliest((result.requeue_after, requests.requeue_after, settled_in)))


def _plan_requests(observation: Observation, settings: ReconcileSettings, now: datetime) -> RequestPlan:
    """Return the next actions for scale requests. A cancelled job ends first; requests that are left fail then."""
    job = observation.job
    if isinstance(job, TorchJob) and job.spec.cancel and not job.is_finished:
        return RequestPlan()
    return steps.plan_requests(observation, settings, now)


def _plan_job(observation: Observation, settings: ReconcileSettings, now: datetime) -> Plan:
    """Return the next actions for the job itself."""
    job = observation.job
    deletion = PodDeletion(now.timestamp(), settings.dead_node_grace, observation.dead_nodes, settings.longest_grace)
    if observation.no_room or (isinstance(job, TorchJob) and status.admission_reason(job.status) == status.EXCEEDS):
        deletion = deletion.for_uncharged()
    if isinstance(job, TorchJob) and not job.is_finished:
        granted = job if job.admission is None else Grant(job, job.admission).job
        # 1. A success stays a success, even if the owner has suspended the job or its resources were taken back since.
        if ending.has_succeeded(job, observation.pods):
            after = status.finish(granted, "Succeeded", "Succeeded", "all is done", now)
            return ending.finish(granted, observation, after, deletion)
        # 2. A cancelled job ends in any phase: its pods are deleted once the status says so.
        if job.spec.cancel:
            after = status.finish(granted, "Failed", "Cancelled", "cancelled by its owner", now)
            return ending.finish(granted, observation, after, deletion)
        # 3. The API server refuses the pods as they are: at first, without what torchq adds to them.
        if (without := choice.decline_refused(granted, observation, settings)) is not None:
            return Plan(status.write(granted, without, observation.pods), 0.0)
        if observation.refused:
            after = status.finish(granted, "Failed", "InvalidTemplate", observation.refused, now)
            return ending.finish(granted, observation, after, deletion)
    # 4. Everything else depends on the state of the job.
    result = _plan_by_state(observation, settings, deletion, now)
    actions = result.actions + deletion.grace_events(result.actions)
    requeue_after = earliest((result.requeue_after, deletion.next_change(observation.pods)))
    return replace(result, actions=actions, requeue_after=requeue_after)


def _plan_by_state(observation: Observation, settings: ReconcileSettings, deletion: PodDeletion, now: datetime) -> Plan:
    deadline = _deadline(observation, settings, now)
    groups = gangs.delete_groups(observation.groups)
    match lifecycle.job_state(observation, deadline):
        case Deleted():
            return ending.plan_deleted(observation, deletion, now)
        case Invalid(invalid):
            return ending.plan_invalid(invalid, observation, deletion, now)
        case Finished(ended):
            return ending.plan_finished(ended, observation, deletion, settings, now)
        case DeletePodsFirst() as state:
            return _plan_deletions(state, observation, settings, deletion, deadline)
        case NotAdmitted() as state:
            return Plan(_plan_not_admitted(state, now) + groups)
        case Requeue() as requeue:
            after = _requeue_status(requeue, settings, now)
            # A ResourceQuota may count the job's services, too, and does not show to whom they belong.
            services = ending.delete_all_services(requeue.job, ()) if requeue.why == "NamespaceQuota" else ()
            return Plan(services + status.write(requeue.job, after, ()) + groups + _requeue_events(after))
        case Active() as active:
            result = _plan_active(active, observation, settings, deletion, deadline)
            removals = _delete_removed(active, result, deletion)
            if removals and not any(isinstance(action, PatchObject) for action in result.actions):
                # The minimum of a group is lowered before any of its pods goes: a restart of the others may come first.
                advance = Advance(run=active, observation=observation, settings=settings, now=now)
                removals = (*advance.changed_groups, *removals)
            return replace(result, actions=result.actions + removals)


def _plan_deletions(
    state: DeletePodsFirst,
    observation: Observation,
    settings: ReconcileSettings,
    deletion: PodDeletion,
    deadline: Deadline,
) -> Plan:
    """Return the plan of a job whose pods are deleted before anything else."""
    cause, now = state.leaving, deadline.now
    if cause is None:
        actions = deletion.delete(state.pods, shorten=True) + ending.report_stuck_pods(observation, deletion, now)
        return Plan(actions, _seconds_to_deadline(observation, deadline))
    if cause.reason in checkpoints.LEAVING and checkpoints.must_save(cause.job, state.pods):
        saves = _save_first(cause, state.pods, observation, settings, now)
        if saves is not None:
            return saves
    after = status.vacate(cause.job, cause.reason, cause.message, now)
    after = choice.decline_unbound(cause.job, after, state.pods, settings)
    return Plan(status.write(cause.job, after, state.pods) + deletion.delete(state.pods, shorten=True))


def _save_first(
    cause: DeletionCause, pods: ending.Pods, observation: Observation, settings: ReconcileSettings, now: datetime
) -> Plan | None:
    """Return the plan of a job that is asked to save before its pods are deleted; None if it has saved, or its time for
    that is over."""
    job = cause.job
    saving = checkpoints.begin(job, f"{cause.reason}/{job.metadata.generation}", now)
    if saving is not None:
        after = status.observe_generation(job).model_copy(update={"saving": saving})
        return Plan(status.write(job, after, pods), 0.0)
    since = job.status.saving.since if job.status.saving is not None else now
    limit = checkpoints.longest_save(job, pods, settings.longest_grace)
    request = checkpoints.pending(job, since, now, observation.reported_save, limit)
    return None if request.remaining is None else Plan(request.actions, request.remaining)


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
        return ending.finish(job, observation, status.finish(job, "Failed", "DeadlineExceeded", message, now), deletion)
    if observation.over_quota is not None and job.admission == active.admission:
        return _plan_over_quota(active, observation, observation.over_quota, deletion, now)
    blocked = _plan_blocked(active, observation.blocker, settings, now)
    if blocked is not None:
        return replace(blocked, requeue_after=earliest((remaining, blocked.requeue_after)))
    # 1. The fence: no pods are created before the admission is in the cluster.
    if job.admission != active.admission:
        return _plan_admission(active, observation, settings, now)
    # 2. A due step of a change of its size is written before anything follows from it.
    resize = find_resize(active, observation, settings, now)
    if (resized := next_step(resize)) is not None:
        return Plan(status.write(job, resized.after, active.pods) + resized.events, requeue_after=0.0)
    # 3. Its pods may request more than it is charged for: that is settled before another pod is created.
    if (charged := settlement.settle(active, observation, deletion, now)) is not None:
        return charged
    # 4. Failures of its pods end the job or set it back; a restart that is under way goes on.
    recovery = _recover(active, observation, settings, deletion, now)
    if recovery.after is not None and recovery.ended:
        return ending.finish(job, observation, recovery.after, deletion, recovery.before)
    pauses = backoff.next_change(job.status if recovery.after is None else recovery.after, settings, now)
    times = (remaining, deadline.remaining(job, active.pods), resize.next_change, recovery.requeue_after)
    requeue_after = earliest((*times, observation.next_dead, pauses))
    if recovery.after is not None:
        return Plan(recovery.before + status.write(job, recovery.after, active.pods) + recovery.actions, requeue_after)
    if recovery.blocked:
        return Plan(recovery.actions, requeue_after, recovery.unexplained)
    # 5. Missing pods are created, and the status follows the existing ones.
    stuck = bool(deletion.stuck_pods(active.pods))
    begun, raises = _choose(active, observation, settings)
    advance = Advance(run=begun, observation=observation, settings=settings, now=now, stuck=stuck)
    waits_for = unfinished.find(begun.job, begun.members, begun.pods)
    after = unfinished.show(advance.status(), waits_for, status.RUNNING, now)
    writes = status.write(job, after, active.pods) + unfinished.event(job.status, after)
    actions = raises + writes + recovery.actions + _steps(advance, deletion)
    requeue_after = earliest((requeue_after, advance.requeue_after, unfinished.next_change(waits_for, now)))
    return Plan(actions + resize.save.actions, requeue_after)


def _choose(
    active: Active, observation: Observation, settings: ReconcileSettings
) -> tuple[Active, tuple[RaiseCharge, ...]]:
    """Return the job with what restarts its missing pods in place, and the charge for that."""
    if not settings.make_pods or active.members.keys() <= {pod.name for pod in observation.pods}:
        return active, ()
    chosen = choice.choose(active.job, active.admission, observation, settings)
    after = active.job.status.model_copy(update=chosen.update)
    begun = replace(active, job=active.job.model_copy(update={"status": after}), admission=chosen.admission)
    return begun, chosen.raises


def _steps(advance: Advance, deletion: PodDeletion) -> tuple[Action, ...]:
    """Return the actions that create what is missing.

    Pods of completed tasks take the resources of the tasks after them, which wait until these pods no longer exist.
    """
    passed = {task_type.lower() for task_type in advance.progress.passed}
    over = tuple(pod for pod in advance.run.pods if pod.task in passed and pod_view.occupies(pod))
    if not over:
        return advance.actions()
    return deletion.delete(tuple(pod for pod in over if pod_view.must_be_stopped(pod, deletion.now)))


def _plan_admission(active: Active, observation: Observation, settings: ReconcileSettings, now: datetime) -> Plan:
    """Write the admission, and the request for workers that it does not have; then create what may exist now."""
    chosen = choice.choose(active.job, _bind_admission(active, settings), observation, settings)
    admission = chosen.admission
    rest = growth.rest_of_admission(active.wanted, admission, now, current.under_way(observation))
    after = status.admit(active.wanted, admission, now).model_copy(
        update={"scaling": rest, "in_place": chosen.in_place, "measured": chosen.measured}
    )
    begun = replace(active, job=active.job.model_copy(update={"status": after}), admission=admission)
    advance = Advance(run=begun, observation=observation, settings=settings, now=now)
    return Plan((*chosen.raises, *status.write(active.job, after, active.pods), *advance.actions()))


def _delete_removed(active: Active, result: Plan, deletion: PodDeletion) -> tuple[Action, ...]:
    """Delete the pods that the job no longer has, beside those that its plan deletes. A plan that waits for what a pod
    says is empty."""
    if result.is_incomplete:
        return ()
    deleted = {pod.uid for action in result.actions if isinstance(action, DeletePods) for pod in action.pods}
    return deletion.delete(pod for pod in active.removed if pod.uid not in deleted)


def _plan_over_quota(
    active: Active, observation: Observation, refused: OverQuota, deletion: PodDeletion, now: datetime
) -> Plan:
    """Send a job back if a ResourceQuota refuses pods that it needs. A job that can run with its existing pods keeps
    its resources, and the other pods are tried again later."""
    job = active.job
    if over_quota.may_run(job, active.pods):
        blocker = Blocker(status.PODS_FORBIDDEN, refused.message)
        return Plan(status.write(job, _block(job, blocker, now), active.pods), TRY_AGAIN)
    queue = over_quota.count_refusal(job, refused)
    if observation.pods:
        after = status.vacate(job, status.NAMESPACE_QUOTA, refused.message, now).model_copy(update={"queue": queue})
        return Plan(status.write(job, after, active.pods) + deletion.delete(observation.pods))
    after = over_quota.send_back(job, queue.refused_by, refused.message, now)
    groups = gangs.delete_groups(observation.groups)
    return Plan(ending.delete_all_services(job, ()) + status.write(job, after, ()) + groups + _requeue_events(after))


def _plan_blocked(active: Active, blocker: Blocker | None, settings: ReconcileSettings, now: datetime) -> Plan | None:
    """Write that an object cannot be created now; None if all can be, or if pods are replaced instead of restarted."""
    if blocker is None:
        return None
    job = active.job
    if not is_about_requests(blocker):
        return Plan(status.write(job, _block(job, blocker, now), active.pods))
    wait = _next_request(job.status, blocker, settings, now)
    return None if wait is None else Plan(status.write(job, status.block(job, blocker, now), active.pods), wait)


def _block(job: TorchJob, blocker: Blocker, now: datetime) -> TorchJobStatus:
    """Return the status of a blocked job. If groups are not let in and pods beside them are forbidden, only the groups
    are reported: every reconcile meets both, and the two reports would alternate."""
    return (
        status.observe_generation(job)
        if blocker.reason in status.ABOUT_PODS and status.is_about_groups(job.status)
        else status.block(job, blocker, now)
    )


def _next_request(
    job_status: TorchJobStatus, blocker: Blocker, settings: ReconcileSettings, now: datetime
) -> float | None:
    """Return the seconds until a request to recreate containers is made again that the API server failed to create.
    None if it has failed for as long as a restart in place may take, or refuses it: the pods are replaced then.

    Each pause is as long as the failure has lasted, so that pauses double, whichever worker goes on.
    """
    if not blocker.passing:
        return None
    is_same = status.admission_reason(job_status) == blocker.reason or not status.is_blocked(job_status)
    since = job_status.blocked_since if is_same else None
    lasted = abs((now - since).total_seconds()) if since is not None else 0.0
    remaining = settings.in_place_timeout - lasted
    return min(max(SHORTEST_PAUSE, lasted), remaining) if remaining > 0 else None


def _bind_admission(active: Active, settings: ReconcileSettings) -> Admission:
    """Return a new admission with the name of the scheduler that binds its pods, and the labels by which their ranks
    are given. Both stay for the admission's lifetime."""
    scheduler = active.job.spec.scheduling_policy.gang_scheduler or settings.gang_scheduler
    update = {"gang_scheduler": scheduler, "topology": settings.topology_labels}
    return active.admission.model_copy(update=update)


def _recover(
    active: Active, observation: Observation, settings: ReconcileSettings, deletion: PodDeletion, now: datetime
) -> Recovery:
    """Return the first thing to do about agents that cannot run, and about failures and restarts."""
    unable = choice.replace_unable(active.job, active.pods, settings)
    if unable is not None:
        return unable
    context = RecoveryContext(
        job=active.job,
        pods=active.pods,
        members=active.members,
        observation=observation,
        settings=settings,
        deletion=deletion,
        now=now,
    )
    return context.recover()


def _plan_not_admitted(state: NotAdmitted, now: datetime) -> tuple[Action, ...]:
    job = state.job
    if job.status.phase == state.phase and job.admission is None:
        return status.write(job, status.observe_generation(job), ())
    return status.write(job, status.release(job, state.phase, state.reason, state.message, now), ())
