"""The status of a job, and the patch that writes it.

One rule: pure; one merge patch with only the changes. When a worker sends a job back, the worker writes in
`status.queue` how the job waits, and later removes fields that no longer apply. The coordinator writes why a job waits.
The usual order is Queued, Admitted, Running and the end. A change of pod counts alone is not written; such a change is
included in the next write.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

from crds import labels
from crds.resources.amounts import Amounts
from crds.torchjob import conditions, restart_requests
from crds.torchjob.conditions import Phase
from crds.torchjob.status import (
    Admission,
    InPlace,
    PodMeasurements,
    QueueStatus,
    StageStatus,
    TaskStatus,
    TorchJobStatus,
)
from crds.torchjob.tasks import WORKER
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import backoff, closed_holds, rendezvous
from reconcilers.plan.health import finding
from reconcilers.pods import measure, static_world
from reconcilers.values import Action, Blocker, WriteStatus
from reconcilers.views.pod_view import PodView

PODS_FORBIDDEN = "PodsForbidden"
"""Reason: the API server allows no pod of the job, because a permission is missing or a policy forbids it."""
NAME_TAKEN = "NameTaken"
"""Reason: an object that belongs to no job has a name that the job needs."""
NOT_CREATED = "NotCreated"
"""The end of a reason after a kind: the API server, or a webhook that it asks, fails when such an object is created."""
ABOUT_PODS = (PODS_FORBIDDEN, NAME_TAKEN, f"Pod{NOT_CREATED}", f"Service{NOT_CREATED}")
"""Reasons: pods, or services that are created with them, cannot be created."""
PODS_STUCK = "PodsStuck"
"""Reason: finalizers keep pods that should no longer exist."""
LEAVING = ("Suspending", "Draining", "Resizing")
"""Reasons: all pods are being deleted, and the job may go on afterwards."""
LATE = "NotRunningInTime"
"""Reason: not all of the job ran in time. Its pods are being deleted, and it gives its resources back."""
EXCEEDS = "ExceedsQuota"
"""Reason: the job's pods request more than their templates, and the queue or pool has no room for that. Its pods are
being deleted, and it gives its resources back."""
NAMESPACE_QUOTA = "NamespaceQuota"
"""Reason: a ResourceQuota of the namespace has no room for the job's pods. They are being deleted, and the job gives
its resources back."""
NO_MEMORY = "NoRoomForMemory"
"""Reason: pods of a task are to have more memory than those before them, and there is no room for that."""
SENT_BACK = (LATE, EXCEEDS, NAMESPACE_QUOTA, conditions.WAITS_FOR_SCHEDULER, conditions.DOMAIN_CLOSED)
NOT_BLOCKED = (*conditions.USUAL, *conditions.LACKS_PODS)
"""The reasons of the condition Admitted under which the job is not blocked."""

RUNNING = "every task has its minimum of running pods"
"""The message of a running job."""

LONGEST_BACKOFF = 3600.0
"""The longest wait, in seconds, of a job that did not run in time."""


def enter(job: TorchJob, phase: Phase, reason: str, message: str, now: datetime) -> TorchJobStatus:
    """Return the job's status in a phase; entering the same phase again changes only the reason."""
    status = enter_status(job.status, job.metadata.generation, phase, reason, message, now)
    since = status.blocked_since if phase == "Admitted" else None
    saving = status.saving if phase == "Running" else None
    return status.model_copy(update={"tenant_queue": job.queue, "blocked_since": since, "saving": saving})


def enter_status(
    before: TorchJobStatus, generation: int, phase: Phase, reason: str, message: str, now: datetime
) -> TorchJobStatus:
    """Return a status in a phase, also for a job whose spec is not valid."""
    # A user wrote conditions that contradict the phase: they are replaced.
    ended = conditions.phase_of(before.conditions) in conditions.FINISHED
    existing = () if ended and not before.is_finished else before.conditions
    updated = conditions.enter(existing, phase, reason, message, now, generation)
    return before.model_copy(update={"phase": phase, "conditions": updated, "observed_generation": generation})


def release(job: TorchJob, phase: Phase, reason: str, message: str, now: datetime) -> TorchJobStatus:
    """Return the status of a waiting or suspended job, which holds nothing. The job does not wait for the room of
    restart agents: whether its next pods have them is decided once it is admitted.
    """
    empty: dict[str, Any] = {"admission": None, "scaling": None, "target": None, "start_time": None, "stages": {}}
    empty |= {"departed": {}, "refused_since": None, "recalled": None}
    empty["task_statuses"] = count_pods(job, ())
    empty |= backoff.clear()
    empty |= {"in_place": _settled(job.status.in_place), "measured": measure.without_agents(job.status)}
    if phase == "Suspended" and job.status.queue is not None:  # the job waits for its owner alone
        empty["queue"] = job.status.queue.model_copy(update={"reason": "", "message": ""})
    return enter(job, phase, reason, message, now).model_copy(update=empty)


def _settled(in_place: InPlace | None) -> InPlace | None:
    """Return the part of a choice that outlives an admission."""
    return in_place.model_copy(update={"charged": False}) if in_place is not None and in_place.settled else None


def admit(job: TorchJob, admission: Admission, now: datetime) -> TorchJobStatus:
    """Return the status of an admitted job. No pod of the job is created before this status is written."""
    update: dict[str, Any] = {
        "admission": admission.model_copy(update={"admitted_at": now}),
        "attempt": admission.attempt,
        "selector": f"{labels.JOB_UID}={job.metadata.uid},{labels.TASK_TYPE}={WORKER.lower()}",
        "start_time": now,
        "queue": _carry_over(job, now),
        "stages": {index: StageStatus(began=now) for index in job.status.stages if job.admission is None},
        "task_statuses": {},
        "node_failures": {},
        "excluded_nodes": (),
        "replacing": (),
        "departed": {},
        "training_restarts": 0,
        "early_failure": "",
        "target": None,
        "blocked_since": None,
        **backoff.clear(),
    }
    request = restart_requests.pending_request(job)
    if request is not None:
        update["restart_request"] = request.id  # new pods fulfil the request
    message = f"admitted to queue {admission.queue}, attempt {admission.attempt}"
    return enter(job, "Admitted", "Admitted", message, now).model_copy(update=update)


def _carry_over(job: TorchJob, now: datetime) -> QueueStatus | None:
    """Return the part of `status.queue` that still applies if the job has to wait again before it runs."""
    before = job.status.queue
    if before is None or job.is_retry_due(now):
        return None
    counts = QueueStatus(tries=before.tries, refused_by=before.refused_by, refusals=before.refusals)
    return counts if counts != QueueStatus() else None


def mark_running(job: TorchJob, now: datetime) -> TorchJobStatus:
    """Return the status of a running job, in which every task has its minimum: the history of its wait is dropped."""
    after = enter(job, "Running", "Running", RUNNING, now)
    admission = after.admission
    if admission is not None and admission.running is None:
        admission = admission.model_copy(update={"running": now})
    return after.model_copy(update={"queue": None, "admission": admission})


def admission_tries(job: TorchJob, now: datetime) -> int:
    """Return how often in a row the job was admitted and did not run, since its owner last asked for another try."""
    return 0 if job.status.queue is None or job.is_retry_due(now) else job.status.queue.tries


def requeue_late(job: TorchJob, backoff: float, most: int, now: datetime, why: str = "") -> TorchJobStatus:
    """Return the status of a job that is sent back because it did not run in time.

    The job backs off, or is parked after too many tries in a row. The message gives the reason of the condition
    Admitted, else `why`.
    """
    tries = admission_tries(job, now) + 1
    parked = tries >= most
    queue = back_off(job, now, pause(job, tries, backoff), tries=tries, parked=parked)
    queue = queue.model_copy(update={"not_before": None}) if parked else queue
    condition = conditions.find(job.status.conditions, "Admitted")
    if condition is not None and is_blocked(job.status):
        why = condition.message if condition.reason == LATE else f"{condition.reason}: {condition.message}"
    message = "admitted, but not all of its pods ran in time: " + ("parked" if parked else "it is tried again later")
    message += f" ({why})" if why else ""
    return send_back(job, LATE, message, queue, now)


def send_back(job: TorchJob, reason: str, message: str, queue: QueueStatus, now: datetime) -> TorchJobStatus:
    """Return the status of a job that is sent back because of its own pods. A stage that has succeeded stays succeeded:
    the stage is not run again because a later stage could not start.
    """
    update = {"queue": queue, "stages": rendezvous.stages_after_restart(job)}
    return release(job, "Queued", reason, message, now).model_copy(update=update)


def back_off(job: TorchJob, now: datetime, seconds: float, **fields: Any) -> QueueStatus:
    """Return `status.queue` of a job that waits outside the order of its queue for some seconds."""
    until = now + timedelta(seconds=seconds)
    return QueueStatus(
        **{"name": job.queue, "since": now, "not_before": until, "tries": admission_tries(job, now), **fields}
    )


def pause(job: TorchJob, tries: int, first: float, longest: float = LONGEST_BACKOFF) -> float:
    """Return the seconds that a job waits after a number of tries in a row: the time doubles after each try."""
    return backoff.spread(min(longest, first * 2.0 ** min(tries - 1, 64)), f"{job.metadata.uid}/{tries}")


def requeue(
    job: TorchJob, why: Literal["QueueDrained", "Resized", "DomainClosed"], now: datetime, message: str
) -> TorchJobStatus:
    """Return the status of a job that is sent back because its queue was drained or its domain closed (then with a
    message), or to be resized. The job comes first in its queue, unless it requests more than it held."""
    name, charge = (job.admission.queue, job.admission.charge) if job.admission else (job.queue, None)
    queue = QueueStatus(name=name, since=now, tries=admission_tries(job, now), drained=True, held=charge)
    if why == conditions.DOMAIN_CLOSED:
        return send_back(job, why, message, queue, now)
    messages = {
        "QueueDrained": f"queue {name} was drained (stopPolicy HoldAndDrain)",
        "Resized": "it has given its resources back, and requests those of its new size",
    }
    return release(job, "Queued", why, messages[why], now).model_copy(update={"queue": queue})


def requeue_exceeding(job: TorchJob, message: str, now: datetime) -> TorchJobStatus:
    """Return the status of a job that is sent back because there is no room for the real requests of its pods. The job
    is queued again with that amount."""
    queue = QueueStatus(name=job.queue, since=now, tries=admission_tries(job, now))
    return send_back(job, EXCEEDS, message, queue, now)


def record_charge(job: TorchJob, charge: Amounts, measured: PodMeasurements | None) -> TorchJobStatus:
    """Return the status of a job that is charged for the real requests of its pods."""
    assert job.admission is not None
    admission = job.admission.model_copy(update={"charge": dict(charge)})
    return observe_generation(job).model_copy(update={"admission": admission, "measured": measured})


def block(job: TorchJob, blocker: Blocker, now: datetime) -> TorchJobStatus:
    """Return the status of a job that holds its resources but cannot use them. The condition Admitted shows it until
    the job's pods run.

    A failure that passes is written once: each try may have other words, such as the port of a connection.
    """
    after = observe_generation(job)
    if blocker.passing and admission_reason(job.status) == blocker.reason:
        return after
    updated = conditions.set_condition(
        after.conditions, "Admitted", True, blocker.reason, blocker.message, now, job.metadata.generation
    )
    return after.model_copy(update={"conditions": updated, "blocked_since": now if blocker.passing else None})


def unblock(job: TorchJob, now: datetime) -> TorchJobStatus:
    """Return the status of a job that is no longer blocked."""
    message = "the objects that it needs can be created again"
    return block(job, Blocker("Admitted", message), now)


def vacate(job: TorchJob, reason: str, message: str, now: datetime) -> TorchJobStatus:
    """Return the status of a job all of whose pods are about to be deleted.

    The pods belong to an earlier generation from now on, however they end: a pod that ends well because it was asked to
    stop has not completed its work.
    """
    after = enter(job, "Admitted", reason, message, now)
    number = after.restart_generation + 1
    update: dict[str, Any] = {"restart_generation": number, "recreate_generation": number, "replacing": ()}
    update |= {"start_time": None, "scaling": None, "target": None, "training_restarts": 0, "departed": {}}
    update["blocked_since"] = None
    return after.model_copy(update=update | backoff.clear())


def block_on_stuck_pods(job: TorchJob, message: str, now: datetime) -> TorchJobStatus:
    """Return the status of a job whose pods should no longer exist but still exist."""
    return block(job, Blocker(PODS_STUCK, message), now)


def admission_reason(status: TorchJobStatus) -> str:
    """Return the reason of the condition Admitted while the condition is True; else empty."""
    condition = conditions.find(status.conditions, "Admitted")
    return condition.reason if condition is not None and condition.status == "True" else ""


def admission_message(status: TorchJobStatus) -> str:
    """Return the message of the condition Admitted while the condition is True; else empty."""
    condition = conditions.find(status.conditions, "Admitted")
    return condition.message if condition is not None and condition.status == "True" else ""


def is_leaving(status: TorchJobStatus) -> bool:
    """Return whether all pods are being deleted and the job may continue afterwards, even if finalizers keep the
    pods."""
    current = admission_reason(status)
    return current in LEAVING or (current == PODS_STUCK and status.start_time is None)


def is_blocked(status: TorchJobStatus) -> bool:
    """Return whether the condition Admitted says that the job is blocked."""
    condition = conditions.find(status.conditions, "Admitted")
    return condition is not None and condition.reason not in NOT_BLOCKED


def is_about_pods(status: TorchJobStatus) -> bool:
    """Return whether the job is blocked because pods, or their services, cannot be created."""
    return admission_reason(status) in ABOUT_PODS


def waits_for_memory(status: TorchJobStatus) -> bool:
    """Return whether the condition Admitted says that there is no room for memory that is to grow."""
    return admission_reason(status) == NO_MEMORY


def is_about_groups(status: TorchJobStatus) -> bool:
    """Return whether the job is blocked because of its groups: there are no pods before the groups are let in."""
    return is_blocked(status) and admission_reason(status).startswith(("Gang", "PodGroup"))


def finish(job: TorchJob, phase: Phase, reason: str, message: str, now: datetime) -> TorchJobStatus:
    """Return the status of a job at its end."""
    return enter(job, phase, reason, message, now).model_copy(
        update={"completion_time": now, "scaling": None, "target": None, "completed": None, "departed": {}}
        | backoff.clear()
    )


def observe_generation(job: TorchJob) -> TorchJobStatus:
    """Return the status with the newest spec recorded as observed."""
    generation = job.metadata.generation
    if job.status.observed_generation == generation:
        return job.status
    updated = conditions.confirm(job.status.conditions, generation)
    return job.status.model_copy(update={"observed_generation": generation, "conditions": updated})


def count_pods(job: TorchJob, pods: Iterable[PodView]) -> dict[str, TaskStatus]:
    """Return the counts of each task's pods."""
    by_task: dict[str, list[PodView]] = {}
    for pod in pods:
        by_task.setdefault(pod.task, []).append(pod)
    return {name: _count(by_task.get(name.lower(), [])) for name in job.spec.tasks}


def upstream_task_counts(job: TorchJob, stages: Iterable[str]) -> dict[str, TaskStatus]:
    """Return the counts of the tasks that some stages, by index, had waited for: all succeeded, whatever pods of the
    tasks exist now."""
    begun = [stage for stage in job.spec.stages if str(stage.index) in stages]
    return {name: TaskStatus(succeeded=job.spec.tasks[name].num_tasks) for stage in begun for name in stage.awaits}


def _count(pods: list[PodView]) -> TaskStatus:
    failed = [pod for pod in pods if pod.phase == "Failed"]
    evicted = sum(pod.reason == "Evicted" for pod in failed)
    return TaskStatus(
        active=sum(not pod.finished for pod in pods),
        ready=sum(pod.running for pod in pods),
        succeeded=sum(pod.phase == "Succeeded" for pod in pods),
        failed=len(failed) - evicted,
        evicted=evicted,
    )


def write(job: TorchJob, after: TorchJobStatus, pods: Iterable[PodView], now: datetime) -> tuple[Action, ...]:
    """Return the action that writes a status with the counts of some pods, and with the hold that ends now, if one
    does.

    There is none if only the counts would change, unless all pods of a running task exist now for the first time: then
    a pod that disappears without a trace is missed (`recovery`).
    """
    # Pods of an earlier restart are no longer counted. A job that continues to run during a resize has restarted no
    # pods.
    runs_on = after.phase == "Running" and static_world.has_worlds(job, after.admission)
    current = (pod for pod in pods if runs_on or pod.restart == after.restart_generation)
    counts = count_pods(job, current) | upstream_task_counts(job, after.stages)
    update = {"task_statuses": counts, "holds": closed_holds.after(job.status, after, now, job.spec)}
    counted = finding.settle(job, after.model_copy(update=update), RUNNING)
    changed = patch_from(job.status, counted)
    is_settled = after.phase == "Running" and after.scaling is None
    if not changed and is_settled and any(_is_now_whole(job, name, counts[name]) for name in counts):
        changed = difference(job.status.manifest(), counted.manifest())
    return (WriteStatus({"status": changed}, job.metadata.resource_version),) if changed else ()


def is_whole(job: TorchJob, task_type: str, counts: TaskStatus | None) -> bool:
    """Return whether the counts of a task cover all its pods, none of which has failed."""
    return counts is not None and counts.active + counts.succeeded >= job.spec.tasks[task_type].num_tasks


def _is_now_whole(job: TorchJob, task_type: str, counts: TaskStatus) -> bool:
    before = job.status.task_statuses.get(task_type)
    return before is not None and not is_whole(job, task_type, before) and is_whole(job, task_type, counts)


def patch_from(before: TorchJobStatus, after: TorchJobStatus) -> dict[str, Any]:
    """Return the merge patch from one status to another; empty if they differ only in counts of pods."""
    if before == after:
        return {}  # a comparison is cheaper than two manifests, and most reconciles change nothing
    patch = difference(before.manifest(), after.manifest())
    return patch if patch.keys() - {"taskStatuses"} else {}


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON merge patch (RFC 7386) from one object to another."""
    patch: dict[str, Any] = dict.fromkeys(before.keys() - after.keys())
    for name, value in after.items():
        old = before.get(name)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            inner = difference(old, value)
            patch |= {name: inner} if inner else {}
        elif value != old:
            patch[name] = value
    return patch
