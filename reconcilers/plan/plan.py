"""The plan of a job: from an observation to actions.

One rule: pure; the plan is empty when nothing is left to do, and every action in it is safe to repeat.

The problem: a worker may die between any two requests, another worker continues, and the objects that this worker sees
may be a moment old. A procedure that runs through its steps, or a queue of steps still to do, would lose its place, or
do a step twice. So there is no place to lose: each plan follows from the observation alone, and decides on one step.
An event that must not be handled twice is counted in the status first, in one write that fails if the job has changed;
all else follows from that count. A job of four pods that train together, of which pod 2 fails:

    seen                                          planned
    pod 2 has failed, and nothing counts it       write restartCount 1 and restartGeneration 1
    generation 1; four pods of generation 0       ask pods 0, 1 and 3 to restart in place; delete pod 2
    the same, after a worker died                 the same: who was asked is not asked again, who is gone is not deleted
    pods 0, 1 and 3 are back; pod 2 is missing    mark them as generation 1; create pod 2
    all four of generation 1 run                  write the phase Running
    the same                                      nothing

The order of the ladder below is the order of what may not wait: the end of a job, its deadline, what blocks it, its
admission, its size, its charge, its failures, and only then its missing pods.
"""

from dataclasses import replace
from datetime import datetime

from crds.torchjob import conditions
from crds.torchjob.status import TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import backoff, ending, grown_memory, lifecycle, over_quota, pod_deletion, status
from reconcilers.plan.advance import Advance
from reconcilers.plan.elastic import change_steps, checkpoints, current_request, request_steps, unpaid
from reconcilers.plan.elastic.change import Change
from reconcilers.plan.elastic.change_steps import next_step
from reconcilers.plan.elastic.request_steps import RequestPlan
from reconcilers.plan.health import missing_pods, refusals, unfinished
from reconcilers.plan.health.missing_pods import WaitingPods
from reconcilers.plan.health.refusals import Refusal
from reconcilers.plan.in_place import choice, interruptions
from reconcilers.plan.lifecycle import (
    Active,
    DeletePodsFirst,
    DeletionCause,
    NotAdmitted,
    Requeue,
)
from reconcilers.plan.moment import Moment
from reconcilers.plan.pod_deletion import PodDeletion
from reconcilers.plan.recovery import Recovery, RecoveryContext, is_about_requests, next_request
from reconcilers.pods import host_file, measure, missing_hosts
from reconcilers.settings import ReconcileSettings
from reconcilers.values import (
    Action,
    Blocker,
    DeletePods,
    EmitEvent,
    InvalidJob,
    InvalidPod,
    NoMemory,
    NoRoom,
    Observation,
    OverQuota,
    Plan,
    RaiseCharge,
    earliest,
)
from reconcilers.views import pod_history, pod_view

TRY_AGAIN = 60.0
"""Seconds after which pods that a ResourceQuota refuses are tried again while the others of the job run."""


def plan(observation: Observation, settings: ReconcileSettings, now: datetime) -> Plan:
    """Return the next actions for one key, in order."""
    pods, settled_in = pod_history.settle(observation.pods, now.timestamp())
    at = Moment(interruptions.show(replace(observation, pods=pods)), settings, now)
    job = at.observation.job
    # A cancelled job ends before its scale requests continue; the remaining requests then fail.
    ends = isinstance(job, TorchJob) and job.spec.cancel and not job.is_finished
    requests = RequestPlan() if ends else request_steps.plan_requests(at)
    if requests.actions:  # they may change the job, or what its pods are for
        return Plan(requests.actions, 0.0)
    result = _plan_job(at)
    return replace(result, requeue_after=earliest((result.requeue_after, requests.requeue_after, settled_in)))


def _plan_job(at: Moment) -> Plan:
    """Return the next actions for the job itself."""
    observation, job = at.observation, at.observation.job
    if isinstance(job, TorchJob) and not job.is_finished:
        granted = job if at.grant is None else at.grant.job
        # 1. A success stays a success, even if the owner has suspended the job or its resources were taken back since.
        if at.grant is not None and ending.has_succeeded(at.grant, observation.pods):
            after = status.finish(granted, "Succeeded", "Succeeded", ending.done_message(observation.pods), at.now)
            return ending.finish(granted, after, at)
        # 2. A cancelled job ends in any phase: its pods are deleted once the status shows the end.
        if job.spec.cancel:
            return _fail(granted, "Cancelled", "cancelled by its owner", at)
        # 3. The API server refuses the pods: as a first step, the additions of torchq are left out.
        if (without := choice.decline_refused(granted, at)) is not None:
            return Plan(status.write(granted, without, observation.pods, at.now), 0.0)
        if (refused := observation.met(InvalidPod)) is not None:
            return _fail(granted, "InvalidTemplate", refused.message, at)
    # 4. Everything else depends on the state of the job.
    match job:
        case None:
            result = ending.plan_deleted(at)
        case InvalidJob():
            result = ending.plan_invalid(job, at)
        case _:
            result = ending.plan_finished(job, at) if job.is_finished else _plan_by_state(job, at)
    actions = result.actions + pod_deletion.grace_events(result.actions)
    requeue_after = earliest((result.requeue_after, at.deletion.next_change(observation.pods)))
    return replace(result, actions=actions, requeue_after=requeue_after)


def _fail(job: TorchJob, reason: str, message: str, at: Moment) -> Plan:
    """Return the plan that ends a job as failed."""
    return ending.finish(job, status.finish(job, "Failed", reason, message, at.now), at)


def _plan_by_state(job: TorchJob, at: Moment) -> Plan:
    match lifecycle.job_state(job, at):
        case DeletePodsFirst() as state:
            return _plan_deletions(state, at)
        case NotAdmitted() as state:
            return Plan(_plan_not_admitted(state, at) + at.group_deletions)
        case Requeue() as requeue:
            return _send_back(requeue.job, requeue.why, _requeue_status(requeue, at), at)
        case Active() as active:
            result = _plan_active(active, at)
            # The host files of pods are written before a restart reads them.
            told = host_file.corrections(active.job, active.admission, active.members, active.pods)
            removals = _delete_removed(active, result, at)
            if removals:
                # The minimum of a group is lowered before any of its pods is removed: a restart of the other pods may
                # come first.
                groups = Advance(run=active, at=at).changed_groups
                removals = (*(each for each in groups if each not in result.actions), *removals)
            return replace(result, actions=told + result.actions + removals)


def _plan_deletions(state: DeletePodsFirst, at: Moment) -> Plan:
    """Return the plan of a job whose pods are deleted before anything else."""
    cause, job = state.leaving, at.observation.job
    if cause is None:
        actions = at.deletion.delete(state.pods, shorten=True) + ending.report_stuck_pods(at)
        remaining = at.deadline.active_remaining(job) if isinstance(job, TorchJob) else None
        return Plan(actions, remaining if remaining is not None and remaining > 0 else None)
    if cause.reason in checkpoints.LEAVING and checkpoints.must_save(cause.job, state.pods):
        saves = _save_first(cause, state.pods, at)
        if saves is not None:
            return saves
    after = status.vacate(cause.job, cause.reason, cause.message, at.now)
    after = choice.decline_unbound(cause.job, after, state.pods, at.settings)
    return Plan(status.write(cause.job, after, state.pods, at.now) + at.deletion.delete(state.pods, shorten=True))


def _save_first(cause: DeletionCause, pods: ending.Pods, at: Moment) -> Plan | None:
    """Return the plan of a job that is asked to save before its pods are deleted; None if it has saved, or its time for
    that is over."""
    job, now = cause.job, at.now
    saving = checkpoints.begin(job, f"{cause.reason}/{job.metadata.generation}", now)
    if saving is not None:
        after = status.observe_generation(job).model_copy(update={"saving": saving})
        return Plan(status.write(job, after, pods, at.now), 0.0)
    since = job.status.saving.since if job.status.saving is not None else now
    limit = checkpoints.longest_save(job, pods, at.settings.longest_grace)
    request = checkpoints.pending(job, since, now, at.observation.reported_save, limit)
    return None if request.remaining is None else Plan(request.actions, request.remaining)


def _send_back(job: TorchJob, why: str, after: TorchJobStatus, at: Moment) -> Plan:
    """Return the plan of a job without pods that waits again. Where the job waits because of its own pods, an
    Event reports it: its owner looks for the reason there.
    """
    # A ResourceQuota may count the job's services, too, and does not show to whom they belong.
    services = ending.delete_all_services(job, ()) if why == status.NAMESPACE_QUOTA else ()
    queued = conditions.find(after.conditions, "Queued")
    is_told = queued is not None and queued.reason in status.SENT_BACK
    events = (EmitEvent(queued.reason, queued.message, warning=True),) if queued is not None and is_told else ()
    return Plan(services + status.write(job, after, (), at.now) + at.group_deletions + events)


def _requeue_status(requeue: Requeue, at: Moment) -> TorchJobStatus:
    settings, now = at.settings, at.now
    if requeue.why == "ExceedsQuota":
        return status.requeue_exceeding(requeue.job, requeue.message, now)
    if requeue.why == "NamespaceQuota":
        waits = requeue.job.status.queue
        return over_quota.send_back(requeue.job, waits.refused_by if waits else None, requeue.message, now)
    if requeue.why == "WaitingForScheduler":
        return refusals.send_back(requeue.job, requeue.message, now)
    if requeue.why != "NotRunningInTime":
        return status.requeue(requeue.job, requeue.why, now, requeue.message)
    return status.requeue_late(requeue.job, settings.admission_backoff, settings.admission_tries, now, requeue.message)


def _plan_active(active: Active, at: Moment) -> Plan:
    """Return the plan of a job that holds its resources."""
    job, is_written = active.job, active.job.admission == active.admission
    # 0. The deadline holds even while another reason blocks the job: resources may be lent to it only until then.
    remaining = at.deadline.active_remaining(job) if is_written else None
    if remaining is not None and remaining <= 0:
        seconds = job.spec.active_deadline_seconds
        return _fail(job, "DeadlineExceeded", f"ran longer than activeDeadlineSeconds {seconds}", at)
    refused = at.observation.met(OverQuota)
    if refused is not None and is_written:
        return _plan_over_quota(active, refused, at)
    blocked = _plan_blocked(active, at)
    if blocked is not None:
        return replace(blocked, requeue_after=earliest((remaining, blocked.requeue_after)))
    # 1. The fence: no pods are created before the admission is in the cluster.
    if not is_written:
        return _plan_admission(active, at)
    # 2. A due step of a change of its size is written before any other action.
    resize = Change(run=active, at=at)
    if (resized := next_step(resize)) is not None:
        return Plan(status.write(job, resized.after, active.pods, at.now) + resized.events, requeue_after=0.0)
    # 3. The pods of a job may request more than its charge: the charge is corrected before another pod is created.
    if (charged := _settle_charge(active, at)) is not None:
        return charged
    # 4. Failures of its pods end the job or set it back; a restart that is under way continues.
    recovery = _recover(active, at)
    if recovery.after is not None and recovery.ended:
        return ending.finish(job, recovery.after, at, recovery.before)
    pauses = backoff.next_change(job.status if recovery.after is None else recovery.after, at.settings, at.now)
    times = (remaining, at.deadline.remaining(job, active.pods), resize.next_change, recovery.requeue_after)
    closes_in = at.observation.domain_closes_in
    closing = closes_in if closes_in is not None and closes_in > 0 else None
    requeue_after = earliest((*times, at.observation.next_dead, closing, pauses))
    if recovery.after is not None:
        return Plan(
            recovery.before + status.write(job, recovery.after, active.pods, at.now) + recovery.actions, requeue_after
        )
    if recovery.blocked:
        return Plan(recovery.actions, requeue_after, recovery.unexplained)
    # 5. Missing pods are created, and the status follows the existing ones.
    result = _plan_missing(active, at, recovery)
    return Plan(result.actions + resize.save.actions, earliest((requeue_after, result.requeue_after)))


def _settle_charge(active: Active, at: Moment) -> Plan | None:
    """Return the plan of a job that is charged for less than its pods request, or are to request; None if the charge is
    sufficient, or if there is no room for memory that is to grow. The charge is raised before the status shows the
    raised charge.
    """
    job = active.job
    claimed = at.observation.claimed
    excess = measure.find_excess(job, active.admission.charge, active.pods, claimed)
    if excess is None and claimed is not None:
        return Plan(status.write(job, measure.count_claims(job, claimed), active.pods, at.now), requeue_after=0.0)
    if excess is None:
        raises, after = grown_memory.charge_growth(job, job.status, at.observation.met(NoMemory))
        return Plan((*raises, *status.write(job, after, active.pods, at.now)), requeue_after=0.0) if raises else None
    if excess.uncountable:
        return _fail(job, "InvalidTemplate", f"{excess}; that is more than a job can be charged for", at)
    full = at.observation.met(NoRoom)
    if full is None:
        written = status.write(job, status.record_charge(job, excess.charge, excess.measured), active.pods, at.now)
        return Plan((RaiseCharge(active.admission.attempt, excess.charge), *written), requeue_after=0.0)
    message = excess.describe_refusal(active.admission.queue, full.by)
    after = status.vacate(job, status.EXCEEDS, message, at.now).model_copy(update={"measured": excess.measured})
    return Plan(status.write(job, after, active.pods, at.now) + at.deletion.delete(active.pods))


def _plan_missing(active: Active, at: Moment, recovery: Recovery) -> Plan:
    """Return the plan that creates missing pods and writes the status, beside a restart, or gives room back."""
    job, now, stuck = active.job, at.now, bool(at.deletion.stuck_pods(active.pods))
    begun, raises = _choose(active, at)
    advance = Advance(run=begun, at=at, stuck=stuck, held=recovery.held)
    waits_for = unfinished.find(begun.job, begun.members, begun.pods)
    missing = WaitingPods(advance.scheduling, begun.progress, begun.pods, at.observation.groups, now).find()
    if (recall := _plan_recall(active, missing.refusal, at)) is not None:
        return recall
    after = missing_pods.show(advance.status(), missing.reason, status.RUNNING, now)
    after = refusals.note(unfinished.show(after, waits_for, status.RUNNING, now), missing.refusal)
    writes = status.write(job, after, active.pods, at.now) + unfinished.event(job.status, after)
    later = (advance.requeue_after, missing.next_change, unfinished.next_change(waits_for, now))
    return Plan(raises + writes + recovery.actions + _steps(advance, at.deletion), earliest(later))


def _plan_recall(active: Active, refusal: Refusal | None, at: Moment) -> Plan | None:
    """Return the plan of a job that gives its room back because of a refusal; None if the job keeps its room."""
    if refusal is None or not refusals.is_recalled(active.job.status, refusal):
        return None
    after = status.vacate(active.job, conditions.WAITS_FOR_SCHEDULER, refusal.message, at.now)
    deletions = at.deletion.delete(at.observation.pods, shorten=True)
    return Plan(status.write(active.job, after, active.pods, at.now) + deletions, 0.0)


def _choose(active: Active, at: Moment) -> tuple[Active, tuple[RaiseCharge, ...]]:
    """Return the job with the driver that restarts its missing pods in place, and the charge for this driver."""
    if not at.settings.make_pods or active.members.keys() <= {pod.name for pod in at.observation.pods}:
        return active, ()
    chosen = choice.choose(active.job, active.admission, at)
    after = active.job.status.model_copy(update=chosen.update)
    begun = replace(active, job=active.job.model_copy(update={"status": after}), admission=chosen.admission)
    return begun, chosen.raises


def _steps(advance: Advance, deletion: PodDeletion) -> tuple[Action, ...]:
    """Return the actions that create the missing objects.

    Pods of completed tasks take the resources of the tasks after them, which wait until these pods no longer exist.
    """
    passed = {task_type.lower() for task_type in advance.run.progress.passed}
    over = tuple(pod for pod in advance.run.pods if pod.task in passed and pod_view.occupies(pod))
    if not over:
        return advance.actions()
    return deletion.delete(tuple(pod for pod in over if pod_view.must_be_stopped(pod, deletion.now)))


def _plan_admission(active: Active, at: Moment) -> Plan:
    """Write the admission, and the request for workers that it does not have; then create the objects that may
    exist now."""
    # Both stay for the admission's lifetime.
    scheduler = active.job.spec.scheduling_policy.gang_scheduler or at.settings.gang_scheduler
    update = {"gang_scheduler": scheduler, "topology": at.settings.topology}
    chosen = choice.choose(active.job, active.admission.model_copy(update=update), at)
    admission = chosen.admission
    rest = change_steps.rest_of_admission(active.wanted, admission, at.now, current_request.under_way(at.observation))
    after = status.admit(active.wanted, admission, at.now).model_copy(
        update={"scaling": rest, "in_place": chosen.in_place, "measured": chosen.measured}
    )
    begun = replace(active, job=active.job.model_copy(update={"status": after}), admission=admission)
    created = Advance(run=begun, at=at).actions() if at.observation.claimed is None else ()
    told = missing_hosts.event(begun.job, active.members.values())
    return Plan((*chosen.raises, *status.write(active.job, after, active.pods, at.now), *told, *created))


def _delete_removed(active: Active, result: Plan, at: Moment) -> tuple[Action, ...]:
    """Delete the pods that the job no longer has, beside those that its plan deletes, and soon those of unpaid workers
    that had to be gone by now. A plan that waits for the report of a pod is empty.
    """
    if result.is_incomplete:
        return ()
    deleted = {pod.uid for action in result.actions if isinstance(action, DeletePods) for pod in action.pods}
    left = [pod for pod in active.removed if pod.uid not in deleted]
    late = unpaid.late_pods(active, at)
    soon = at.deletion.for_late().delete((pod for pod in left if pod in late), shorten=True)
    return soon + at.deletion.delete(pod for pod in left if pod not in late)


def _plan_over_quota(active: Active, refused: OverQuota, at: Moment) -> Plan:
    """Send a job back if a ResourceQuota refuses pods that it needs. A job that can run with its existing pods keeps
    its resources, and the other pods are tried again later."""
    job, now = active.job, at.now
    if over_quota.may_run(job, active.pods):
        blocker = Blocker(status.PODS_FORBIDDEN, refused.message)
        return Plan(status.write(job, _block(job, blocker, now), active.pods, at.now), TRY_AGAIN)
    queue = over_quota.count_refusal(job, refused)
    if at.observation.pods:
        after = status.vacate(job, status.NAMESPACE_QUOTA, refused.message, now).model_copy(update={"queue": queue})
        return Plan(status.write(job, after, active.pods, at.now) + at.deletion.delete(at.observation.pods))
    after = over_quota.send_back(job, queue.refused_by, refused.message, now)
    return _send_back(job, status.NAMESPACE_QUOTA, after, at)


def _plan_blocked(active: Active, at: Moment) -> Plan | None:
    """Write that an object cannot be created now; None if all can be, or if pods are replaced instead of restarted."""
    job, now, blocker = active.job, at.now, at.observation.met(Blocker)
    if blocker is None:
        return None
    refusal = refusals.of_blocker(job, blocker, now)
    if (recall := _plan_recall(active, refusal, at)) is not None:
        return recall
    if not is_about_requests(blocker):
        after = _block(job, blocker, now) if refusal is None else refusals.note(_block(job, blocker, now), refusal)
        return Plan(status.write(job, after, active.pods, at.now))
    wait = next_request(job.status, blocker, at.settings, now)
    return None if wait is None else Plan(status.write(job, status.block(job, blocker, now), active.pods, at.now), wait)


def _block(job: TorchJob, blocker: Blocker, now: datetime) -> TorchJobStatus:
    """Return the status of a blocked job. If groups are not let in and pods beside them are forbidden, only the groups
    are reported: every reconcile meets both problems, and the two reports would alternate."""
    return (
        status.observe_generation(job)
        if blocker.reason in status.ABOUT_PODS and status.is_about_groups(job.status)
        else status.block(job, blocker, now)
    )


def _recover(active: Active, at: Moment) -> Recovery:
    """Return the first thing to do about agents that cannot run, and about failures and restarts."""
    unable = choice.replace_unable(active.job, active.pods, at.settings)
    return RecoveryContext(active, at, active.job).recover() if unable is None else unable


def _plan_not_admitted(state: NotAdmitted, at: Moment) -> tuple[Action, ...]:
    job, claimed = state.job, at.observation.claimed
    if job.status.phase == state.phase and job.admission is None:
        after = status.observe_generation(job)
    else:
        after = status.release(job, state.phase, state.reason, state.message, at.now)
    if claimed is not None:  # the charge of the job includes its devices from now on
        after = measure.count_claims(job.model_copy(update={"status": after}), claimed)
    return status.write(job, after, (), at.now)
