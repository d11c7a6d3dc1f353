"""The status of a job, and the patch that brings it about.

One rule: pure; one merge patch with only what changed. Of `status.queue` a worker writes how a job waits that it sends
back, and takes away what is over; why a job waits is the coordinator's word. Over a life: Queued, Admitted, Running and
the end. Counts of pods alone are no reason to write; they go along with the next write.
"""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

from crds import labels
from crds.resources.amounts import Amounts
from crds.torchjob import conditions, restart_requests
from crds.torchjob.conditions import Phase
from crds.torchjob.status import Admission, Measured, QueueStatus, TaskStatus, TorchJobStatus
from crds.torchjob.tasks import WORKER
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import backoff
from reconcilers.values import Hindrance
from reconcilers.views.pod_view import PodView

PODS_FORBIDDEN = "PodsForbidden"
"""Reason: the API server lets no pod of the job be made, for want of a permission or because of a policy."""
NAME_TAKEN = "NameTaken"
"""Reason: an object that is nobody's job has a name that the job needs."""
PODS_STUCK = "PodsStuck"
"""Reason: finalizers of others keep pods that should be gone."""
LEAVING = ("Suspending", "Draining", "Resizing")
"""Reasons: all pods are on their way out, and the job may go on all the same."""
LATE = "NotRunningInTime"
"""Reason: not all of it ran in time; its pods are on their way out, and it gives its room back."""
EXCEEDS = "ExceedsQuota"
"""Reason: its pods ask for more than their templates, and queue or pool have no room for that; its pods are on their
way out, and it gives its room back."""
NAMESPACE_QUOTA = "NamespaceQuota"
"""Reason: a ResourceQuota of its namespace does not hold its pods; they are on their way out, and it gives its room
back."""
SENT_BACK = (LATE, EXCEEDS, NAMESPACE_QUOTA)
UNHINDERED = ("Admitted", "Running", "Restarting", *LEAVING)
"""Reasons of the condition Admitted that say nothing against the job."""

LONGEST_BACKOFF = 3600.0
"""Seconds."""
JITTER = 0.25
"""The largest part of a backoff that is left out."""


def enter(job: TorchJob, phase: Phase, reason: str, message: str, now: datetime) -> TorchJobStatus:
    """The job's status in a phase; entering it again changes nothing but the reason."""
    status = entered(job.status, job.metadata.generation, phase, reason, message, now)
    return status.model_copy(update={"tenant_queue": job.queue})


def entered(
    before: TorchJobStatus, generation: int, phase: Phase, reason: str, message: str, now: datetime
) -> TorchJobStatus:
    """The same for a job that has a status but no valid spec."""
    # Conditions that contradict the phase are nobody's word of ours: they begin anew.
    ended = conditions.phase_of(before.conditions) in conditions.FINISHED
    known = () if ended and not before.finished else before.conditions
    found = conditions.enter(known, phase, reason, message, now, generation)
    return before.model_copy(update={"phase": phase, "conditions": found, "observed_generation": generation})


def idle(job: TorchJob, phase: Phase, reason: str, message: str, now: datetime) -> TorchJobStatus:
    """Waiting or suspended: it holds nothing."""
    empty: dict[str, Any] = {"admission": None, "start_time": None, "stages": {}, "task_statuses": count(job, ())}
    empty |= backoff.over()
    if phase == "Suspended" and job.status.queue is not None:  # it waits for its owner alone
        empty["queue"] = job.status.queue.model_copy(update={"reason": "", "message": ""})
    return enter(job, phase, reason, message, now).model_copy(update=empty)


def admitted(job: TorchJob, admission: Admission, now: datetime) -> TorchJobStatus:
    """It holds its room: the fence behind which its pods are made."""
    update: dict[str, Any] = {
        "admission": admission.model_copy(update={"admitted_at": now}),
        "attempt": admission.attempt,
        "selector": f"{labels.JOB_UID}={job.metadata.uid},{labels.TASK_TYPE}={WORKER.lower()}",
        "start_time": now,
        "queue": _remembered(job, now),
        "stages": {},
        "task_statuses": {},
        "node_failures": {},
        "excluded_nodes": (),
        "replacing": (),
        **backoff.over(),
    }
    request = restart_requests.requested(job)
    if request is not None:
        update["restart_request"] = request.id  # new pods are what was asked for
    message = f"room taken from queue {admission.queue}, attempt {admission.attempt}"
    return enter(job, "Admitted", "Admitted", message, now).model_copy(update=update)


def _remembered(job: TorchJob, now: datetime) -> QueueStatus | None:
    """Of how it waited, what counts if it has to wait again before it runs."""
    tries, refusal = tried(job, now), job.status.queue.refused_by if job.status.queue else None
    if job.retried(now):
        refusal = None
    return QueueStatus(tries=tries, refused_by=refusal) if tries or refusal else None


def running(job: TorchJob, now: datetime) -> TorchJobStatus:
    """Every task has its minimum: whatever it took to get here is forgotten."""
    after = enter(job, "Running", "Running", "every task has its minimum of running pods", now)
    return after.model_copy(update={"queue": None})


def tried(job: TorchJob, now: datetime) -> int:
    """How often in a row it has been admitted and did not run, as far as nobody has asked for another try since."""
    return 0 if job.status.queue is None or job.retried(now) else job.status.queue.tries


def late(job: TorchJob, backoff: float, most: int, now: datetime, why: str = "") -> TorchJobStatus:
    """Sent back because it did not run in time: it backs off, or is parked after too many tries in a row. What kept it
    from running is what the condition Admitted says, else `why`."""
    tries = tried(job, now) + 1
    parked = tries >= most
    seconds = min(LONGEST_BACKOFF, backoff * 2.0 ** min(tries - 1, 64)) * (1.0 - jitter(job, tries))
    queue = QueueStatus(
        name=job.queue,
        since=now,
        not_before=None if parked else now + timedelta(seconds=seconds),
        parked=parked,
        tries=tries,
    )
    said = conditions.find(job.status.conditions, "Admitted")
    if said is not None and is_hindered(job.status):
        why = said.message if said.reason == LATE else f"{said.reason}: {said.message}"
    message = "admitted, but not all of it ran in time: " + ("parked" if parked else "it is tried again later")
    message += f" ({why})" if why else ""
    return idle(job, "Queued", LATE, message, now).model_copy(update={"queue": queue})


def jitter(job: TorchJob, tries: int) -> float:
    """A part of the backoff to leave out, the job's own at each try: those that failed together do not come back in
    step. Two gangs that each got half of a cluster would go on like that for ever."""
    digest = hashlib.sha256(f"{job.metadata.uid}/{tries}".encode()).digest()
    return JITTER * int.from_bytes(digest[:4], "big") / 2**32


def returning(job: TorchJob, why: Literal["QueueDrained", "Resized"], now: datetime) -> TorchJobStatus:
    """Sent back because its queue was drained, or to be resized: it comes first when its queue goes on, as long as it
    asks for no more than it held."""
    admission = job.admission
    name = admission.queue if admission else job.queue
    held = admission.charge if admission else None
    queue = QueueStatus(name=name, since=now, tries=tried(job, now), drained=True, held=held)
    messages = {
        "QueueDrained": f"queue {name} was drained (stopPolicy HoldAndDrain)",
        "Resized": "it has given its room back, and asks for that of its new size",
    }
    return idle(job, "Queued", why, messages[why], now).model_copy(update={"queue": queue})


def exceeding(job: TorchJob, message: str, now: datetime) -> TorchJobStatus:
    """Sent back because there is no room for what its pods really ask for: it is put again with that."""
    queue = QueueStatus(name=job.queue, since=now, tries=tried(job, now))
    return idle(job, "Queued", EXCEEDS, message, now).model_copy(update={"queue": queue})


def charged(job: TorchJob, charge: Amounts, measured: Measured) -> TorchJobStatus:
    """It is charged for what its pods really ask for."""
    assert job.admission is not None
    admission = job.admission.model_copy(update={"charge": dict(charge)})
    return seen(job).model_copy(update={"admission": admission, "measured": measured})


def hindered(job: TorchJob, hindrance: Hindrance, now: datetime) -> TorchJobStatus:
    """It holds its room, but cannot use it: said with the condition Admitted until its pods run."""
    after = seen(job)
    found = conditions.set_condition(
        after.conditions, "Admitted", True, hindrance.reason, hindrance.message, now, job.metadata.generation
    )
    return after.model_copy(update={"conditions": found})


def unhindered(job: TorchJob, now: datetime) -> TorchJobStatus:
    """What kept it from using its room does so no longer."""
    message = "what it needs can be made again"
    return hindered(job, Hindrance("Admitted", message), now)


def leaving(job: TorchJob, reason: str, message: str, now: datetime) -> TorchJobStatus:
    """All its pods are about to be deleted. They are of the past from now on, whatever becomes of them: who ends well
    because it was told to stop has not done what the job is for."""
    after = enter(job, "Admitted", reason, message, now)
    number = after.restart_generation + 1
    update = {"restart_generation": number, "recreate_generation": number, "replacing": (), "start_time": None}
    return after.model_copy(update=update | backoff.over())


def stuck(job: TorchJob, message: str, now: datetime) -> TorchJobStatus:
    """Pods that should be gone are not."""
    return hindered(job, Hindrance(PODS_STUCK, message), now)


def reason(status: TorchJobStatus) -> str:
    """Of the condition Admitted, while that is True."""
    found = conditions.find(status.conditions, "Admitted")
    return found.reason if found is not None and found.status == "True" else ""


def said(status: TorchJobStatus) -> str:
    """The sentence of the condition Admitted, while that is True."""
    found = conditions.find(status.conditions, "Admitted")
    return found.message if found is not None and found.status == "True" else ""


def is_leaving(status: TorchJobStatus) -> bool:
    """Whether all its pods are on their way out, and the job may go on all the same; also where they do not go."""
    said = reason(status)
    return said in LEAVING or (said == PODS_STUCK and status.start_time is None)


def is_hindered(status: TorchJobStatus) -> bool:
    """Whether it says so."""
    found = conditions.find(status.conditions, "Admitted")
    return found is not None and found.reason not in UNHINDERED


def is_about_groups(status: TorchJobStatus) -> bool:
    """Whether what hinders it is a matter of its groups: before they are let in there are no pods."""
    return reason(status).startswith(("Gang", "PodGroup"))


def finished(job: TorchJob, phase: Phase, reason: str, message: str, now: datetime) -> TorchJobStatus:
    """The end."""
    return enter(job, phase, reason, message, now).model_copy(update={"completion_time": now} | backoff.over())


def seen(job: TorchJob) -> TorchJobStatus:
    """As it is, with its newest spec observed."""
    generation = job.metadata.generation
    if job.status.observed_generation == generation:
        return job.status
    found = conditions.confirmed(job.status.conditions, generation)
    return job.status.model_copy(update={"observed_generation": generation, "conditions": found})


def count(job: TorchJob, pods: Iterable[PodView]) -> dict[str, TaskStatus]:
    """The pods of each task, counted."""
    by_task: dict[str, list[PodView]] = {}
    for pod in pods:
        by_task.setdefault(pod.task, []).append(pod)
    return {name: _count(by_task.get(name.lower(), [])) for name in job.spec.tasks}


def passed(job: TorchJob, stages: Iterable[str]) -> dict[str, TaskStatus]:
    """The tasks that stages, by index, had waited for: all of them succeeded, whatever became of their pods since."""
    begun = [each for each in job.spec.stages if str(each.index) in stages]
    return {name: TaskStatus(succeeded=job.spec.tasks[name].num_tasks) for each in begun for name in each.awaits}


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


def change(before: TorchJobStatus, after: TorchJobStatus) -> dict[str, Any]:
    """The merge patch from one status to another; empty if they differ in nothing but counts of pods."""
    if before == after:
        return {}  # a comparison is cheaper than two manifests, and most looks find nothing new
    found = difference(before.manifest(), after.manifest())
    return found if found.keys() - {"taskStatuses"} else {}


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch (RFC 7386) from one object to another."""
    found: dict[str, Any] = dict.fromkeys(before.keys() - after.keys())
    for name, value in after.items():
        old = before.get(name)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            inner = difference(old, value)
            found |= {name: inner} if inner else {}
        elif value != old:
            found[name] = value
    return found
