"""The end of a job: success, failure, deletion, and what is deleted after the end.

One rule: pure. The status records the end before the pods that prove it are deleted; the services, whose existence is
not recorded anywhere else, are deleted before this record.
"""

import math
from dataclasses import dataclass, replace
from datetime import datetime

from crds import integers
from crds.torchjob import conditions
from crds.torchjob.status import Completion, TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import closed_holds, progress, status
from reconcilers.plan.in_place import interruptions
from reconcilers.plan.moment import Moment
from reconcilers.pods import model_record, task_members
from reconcilers.pods.grants import Grant
from reconcilers.pods.task_members import PodMember
from reconcilers.values import (
    Action,
    DeleteJob,
    DeleteService,
    EmitEvent,
    InvalidJob,
    Observation,
    Plan,
    WriteStatus,
    earliest,
)
from reconcilers.views import pod_history, pod_view
from reconcilers.views.pod_view import PodView

Pods = tuple[PodView, ...]
RECORDING_SECONDS = 10.0
"""How often a worker looks how far the history is recorded."""


def has_succeeded(granted: Grant, pods: Pods) -> bool:
    """Return whether the pods of the newest admission have completed the job, even if only the coordinator has seen the
    completion.
    """
    if find_record(granted.wanted) is not None:
        return True
    if not (granted.wanted.status.stages or any(pod.phase == "Succeeded" for pod in pods)):
        return False
    job_progress = progress.assess(granted.job, granted.own_pods(pods))
    decisive = task_members.decisive_tasks(granted.job)
    return bool(decisive) and all(map(job_progress.done, decisive))


def done_message(pods: Pods) -> str:
    """Return the message of a success. The message mentions it if a pod was connected with a pod of another job."""
    told = next((f"pod {pod.name}: {pod.advice}" for pod in pods if pod.advice and pod.phase != "Failed"), "")
    return f"all is done, but {told}" if told else "all is done"


def find_record(job: TorchJob) -> Completion | None:
    """Return the record that the present pods of a job have completed it; None if there is no record, or only an
    earlier one.
    """
    found, admission = job.status.completed, job.admission
    if found is None or admission is None:
        return None
    is_present = (found.attempt, found.restart_generation) == (admission.attempt, job.status.restart_generation)
    return found if is_present else None


@dataclass(frozen=True, slots=True)
class CompletionVerdict:
    """Whether the observed pods have completed a job that no worker has ended."""

    is_complete: bool
    result_of: PodView | None = None
    """The pod that gives the result of the job."""
    model_of: PodView | None = None
    """The pod that has counted the files of the job's model."""
    settled_in: float | None = None
    """The seconds until this may be judged otherwise."""


def judge_completion(observation: Observation, now: datetime) -> CompletionVerdict:
    """Return the verdict on the observed pods of a job."""
    pods, settled_in = pod_history.settle(observation.pods, now.timestamp())
    settled = interruptions.show(replace(observation, pods=pods))
    job = settled.job
    if not isinstance(job, TorchJob) or job.is_finished or find_record(job) is not None:
        return CompletionVerdict(False)
    granted = Grant(job, job.admission) if job.admission is not None else None
    if granted is None or not has_succeeded(granted, settled.pods):
        return CompletionVerdict(False, settled_in=settled_in)
    return CompletionVerdict(True, *_givers(granted, settled.pods), settled_in)


def finish(job: TorchJob, after: TorchJobStatus, at: Moment, before: tuple[Action, ...] = ()) -> Plan:
    """End the job, after some other actions. The services are deleted first, because their existence is not recorded
    anywhere else. The status is written next, with the job's result, and the pods that prove it are deleted last."""
    observation, deletion = at.observation, at.deletion
    giver, counter = _givers(at.grant, observation.pods)
    counter = counter if model_record.is_due(job, after) else None
    if observation.result is None and (giver is not None or counter is not None):
        return Plan(result_of=giver, model_of=counter)
    record = find_record(job)
    after = after.model_copy(update={"result": observation.result or (record.result if record is not None else "")})
    pods = observation.pods
    to_delete = _leftovers(job.spec.clean_pod_policy, after, pods, deletion.now)
    uids = {pod.uid for pod in to_delete}
    remaining = tuple(pod for pod in pods if pod.uid not in uids)
    may_have_services = job.spec.clean_pod_policy != "None" and (pods or job.status.attempt > 0)
    services = delete_all_services(job, pods) if may_have_services else ()
    # A kill after the record repeats the record, which finds its name taken by this job.
    files = observation.model or (record.model if record is not None else None)
    model = model_record.record(job, after, files, on_machine=at.settings.on_machine)
    writes = services + model + status.write(job, after, remaining, at.now)
    deletions = deletion.delete(to_delete, shorten=True) + at.group_deletions
    return Plan(before + writes + deletions + _failure_events(after))


def _givers(granted: Grant | None, pods: Pods) -> tuple[PodView | None, PodView | None]:
    """Return the pod that gives the result of the job, and the pod that has counted the files of its model: of the last
    run and the last stage with such a pod, the pod with rank 0, else the first one; None if there is no such pod.

    Which process has rank 0 is for the training to say: torchrun's own rendezvous gives ranks in another order.
    """
    if granted is None or not any(pod.has_result or pod.has_model for pod in pods):
        return None, None
    members = granted.members
    current = [pod for pod in granted.own_pods(pods) if not progress.is_outdated(granted.wanted, pod)]
    current.sort(key=lambda pod: _order_of_givers(members[pod.name]))
    return next((pod for pod in current if pod.has_result), None), next((pod for pod in current if pod.has_model), None)


def _order_of_givers(member: PodMember) -> tuple[int, float, str]:
    """Return the sort key of the pods that gave a result: later stages, then ranks, then pods without a rank."""
    return -member.stage, math.inf if member.rank is None else member.rank, member.name


def _failure_events(after: TorchJobStatus) -> tuple[Action, ...]:
    """Return the Event with the reason of a failure: the job's conditions disappear with the job, an Event stays for a
    while."""
    condition = conditions.find(after.conditions, "Failed")
    return (
        (EmitEvent(condition.reason, condition.message, warning=condition.reason != conditions.CANCELLED),)
        if condition is not None and after.phase == "Failed"
        else ()
    )


def plan_finished(job: TorchJob, at: Moment) -> Plan:
    """Clean up after a finished job, and delete the job itself when its time to live is over."""
    observation, deletion = at.observation, at.deletion
    time_to_live = job.spec.ttl_seconds_after_finished
    if time_to_live is None and job.is_cancelled:
        time_to_live = at.settings.cancelled_ttl_seconds
    remaining = _seconds_left(job.status.completion_time, time_to_live, at.now)
    if remaining is not None and remaining <= 0:
        remaining = _until_recorded(job.metadata.resource_version, -remaining, at)
        if remaining is None:
            return Plan((DeleteJob(),))
    # In a drained queue, and beyond activeDeadlineSeconds, no pod keeps its resources, even if the job's owner wants
    # its pods kept.
    policy = job.spec.clean_pod_policy
    active = at.deadline.active_remaining(job)
    is_returning = observation.draining or (active is not None and active <= 0)
    policy = "Running" if is_returning and policy == "None" else policy
    leftovers = _leftovers(policy, job.status, observation.pods, deletion.now)
    deletions = deletion.delete(leftovers, shorten=True) + report_stuck_pods(at)
    has_occupying_pods = any(pod_view.occupies(pod) for pod in observation.pods)
    requeue_after = earliest((remaining, active if has_occupying_pods and not is_returning else None))
    # The newest spec is recorded as observed; the counts of pods stay unchanged.
    changed = status.patch_from(job.status, status.observe_generation(job))
    writes = (WriteStatus({"status": changed}, job.metadata.resource_version),) if changed else ()
    return Plan(writes + deletions + at.group_deletions, requeue_after=requeue_after)


def _until_recorded(version: str, over: float, at: Moment) -> float | None:
    """Return the seconds after which to look again whether the end of a job is in the history; None if the job may be
    deleted now. `over` is the time for which its time to live has been over.

    The patience ends `history_patience` after the recorder was last up to date: a recorder that was removed keeps no
    job for longer. The pauses grow, since each look is a read of the job and thousands of jobs may wait.
    """
    recording, patience = at.observation.recording, at.settings.history_patience
    if recording is None or recording.version >= integers.parse(version, 0):
        return None
    left = patience - max(over, at.now.timestamp() - recording.at)
    return min(max(RECORDING_SECONDS, over / 2), left) if left > 0 else None


def _seconds_left(since: datetime | None, seconds: int | None, now: datetime) -> float | None:
    """Return the seconds that are left of a time span; None if there is no such span."""
    if since is None or seconds is None:
        return None
    return seconds - (now - since).total_seconds()


def _leftovers(policy: str, after: TorchJobStatus, pods: Pods, now: float) -> Pods:
    """Return the pods that are deleted at the job's end. A failed job keeps no pod that takes resources."""
    if policy == "All":
        return pods
    if policy == "Running" or after.phase == "Failed":
        return tuple(pod for pod in pods if pod_view.must_be_stopped(pod, now))
    return ()


def plan_deleted(at: Moment) -> Plan:
    """Delete the pods of a deleted job. These pods keep their own grace, and the queue pays for it; while the queue is
    being drained, the grace is limited to the setting.
    """
    pods, deletion = at.observation.pods, at.deletion
    graceful = deletion if at.observation.draining else replace(deletion, longest=math.inf)
    services = tuple(DeleteService(pod.service) for pod in pods if pod.service and not pod.deleting)
    return Plan(services + graceful.delete(pods, shorten=True) + report_stuck_pods(at) + at.group_deletions)


def plan_invalid(job: InvalidJob, at: Moment) -> Plan:
    """Report an invalid job, delete its pods, and delete the job itself when its time to live is over."""
    ended = job.status.completion_time if job.status.is_finished else None
    remaining = _seconds_left(ended, job.time_to_live, at.now)
    if remaining is not None and remaining <= 0:
        remaining = _until_recorded(job.resource_version, -remaining, at)
        if remaining is None:
            return Plan((DeleteJob(),))
    writes = () if job.status.is_finished else _report_invalid(job, at.now)
    deletions = at.deletion.delete(at.observation.pods, shorten=True) + report_stuck_pods(at)
    return Plan(writes + deletions + at.group_deletions, remaining)


def _report_invalid(job: InvalidJob, now: datetime) -> tuple[Action, ...]:
    message = "; ".join(map(str, job.problems))
    after = status.enter_status(job.status, job.generation, "Failed", "InvalidSpec", message, now)
    after = after.model_copy(update={"completion_time": now, "holds": closed_holds.after(job.status, after, now)})
    change = dict.fromkeys(job.unreadable) | status.patch_from(job.status, after)
    return (WriteStatus({"status": change}, job.resource_version),)


def report_stuck_pods(at: Moment) -> tuple[Action, ...]:
    """Report pods that finalizers keep although the job should have none: as an Event, and in the status of an admitted
    job."""
    job, stuck = at.observation.job, at.deletion.stuck_pods(at.observation.pods)
    if not stuck:
        return ()
    message = at.deletion.describe_stuck(stuck)
    # The Event's name is made from its text, so a repetition creates no second one.
    events = (EmitEvent(status.PODS_STUCK, message, warning=True),)
    if not isinstance(job, TorchJob) or job.is_finished or job.admission is None:
        return events
    if status.is_blocked(job.status):
        return events if at.reason in status.SENT_BACK else ()
    return status.write(job, status.block_on_stuck_pods(job, message, at.now), at.observation.pods, at.now) + events


def delete_all_services(job: TorchJob, pods: Pods) -> tuple[Action, ...]:
    """Delete all services that may exist: if a rank 0 is missing, nothing shows whether the pod had a service."""
    names = {pod.name for pod in pods}
    unseen = (name for name in task_members.lead_pods(job) if name not in names)
    return tuple(map(DeleteService, (*(pod.service for pod in pods if pod.service), *unseen)))
