"""The facts that a written status tells about a job: admitted, runs, sent back, restarted, finished.

One rule: pure. A fact follows from the status before and the status that the API server has taken, so that a repeated
write reports no fact a second time. Times in statuses are whole seconds.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from crds.torchjob import conditions
from crds.torchjob.conditions import ConditionType
from crds.torchjob.status import TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from kube.process.meter import Metric
from queues.task_times import TaskTimes
from reconcilers import metrics
from reconcilers.plan.failures import Kind
from reconcilers.values import EmitEvent, InvalidJob

OTHER_REASON = "Other"
"""The label of a reason that is not one of torchq's own."""
SENT_BACK_REASONS = frozenset(
    {
        "NotRunningInTime",
        "ExceedsQuota",
        "NamespaceQuota",
        "WaitingForScheduler",
        "DomainClosed",
        "QueueDrained",
        "Resized",
    }
)
CHARGED: Kind = "Retryable"
NOT_CHARGED: Kind = "Disruption"


@dataclass(frozen=True, slots=True)
class Fact:
    """One event of a job's life, as its metric counts or measures it."""

    metric: Metric
    labels: tuple[str, ...]
    value: float = 1.0
    """The amount to count, or the seconds to measure."""


def between(job: TorchJob | InvalidJob, status: Mapping[str, Any], now: float) -> Iterator[Fact]:
    """Yield the events between the earlier status of a job and the written status. `now` is in seconds since 1970."""
    before, phase = job.status, str(status.get("phase", ""))
    admission: Mapping[str, Any] = status.get("admission") or {}
    if admits(before, status):
        queue = str(admission.get("queue", ""))
        yield Fact(metrics.ADMISSIONS, (queue,))
        yield Fact(metrics.WAIT_SECONDS, (queue,), max(0.0, now - _waits_since(job)))
    queue = before.admission.queue if before.admission else before.tenant_queue or str(status.get("tenantQueue", ""))
    yield from _restarts(before, status, queue)
    if before.admission is not None and phase == "Queued" and not admission:
        reason = _condition(status, "Queued").get("reason", "")
        yield Fact(metrics.SENT_BACK, (queue, reason if reason in SENT_BACK_REASONS else OTHER_REASON))
    if before.admission is not None and phase == "Running" and not _has_run(before):
        yield Fact(metrics.UNTIL_RUNNING_SECONDS, (queue,), max(0.0, now - _admitted_at(before, now)))
    if phase in conditions.FINISHED and not before.is_finished:
        yield Fact(metrics.FINISHED, (queue, phase.lower()))
        if before.admission is not None:
            yield Fact(metrics.EXECUTION_SECONDS, (queue,), max(0.0, now - _admitted_at(before, now)))


def admits(before: TorchJobStatus, status: Mapping[str, Any]) -> bool:
    """Return whether a written status has an admission that the status before it has not."""
    attempt = (status.get("admission") or {}).get("attempt")
    return attempt is not None and attempt != (before.admission.attempt if before.admission else None)


def held(times: TaskTimes, now: float) -> Iterator[Fact]:
    """Yield for how long a job that was just admitted has held room in each stage since its pick."""
    yield Fact(metrics.HELD_SECONDS, ("dispatch",), times.leased - times.ready)
    yield Fact(metrics.HELD_SECONDS, ("handover",), times.begun - times.leased)
    yield Fact(metrics.HELD_SECONDS, ("admission",), max(0.0, now - times.begun))


def first_pods(job: TorchJob, status: Mapping[str, Any], now: float) -> Iterator[Fact]:
    """Yield the events for a job that had no pods and has got its first pods. `status` is its newest."""
    touched = any(status.get(name) for name in ("restartGeneration", "restartCount", "disruptions"))
    if status.get("attempt") == 1 and not touched and job.submission_time:
        yield Fact(metrics.SUBMIT_TO_PODS_SECONDS, (), max(0.0, now - job.submission_time))


def _restarts(before: TorchJobStatus, status: Mapping[str, Any], queue: str) -> Iterator[Fact]:
    counts = (
        (CHARGED, before.restart_count, status.get("restartCount")),
        (NOT_CHARGED, before.disruptions, status.get("disruptions")),
    )
    for cause, old, new in counts:
        if isinstance(new, int) and new > old:
            yield Fact(metrics.RESTARTS, (queue, cause), float(new - old))


def _waits_since(job: TorchJob | InvalidJob) -> float:
    """Return since when a job waits: since it was last sent back or resumed, else since its submission."""
    if job.status.queue is not None and job.status.queue.since is not None:
        return job.status.queue.since.timestamp()
    resumed = conditions.find(job.status.conditions, "Suspended")
    if resumed is not None:
        return resumed.last_transition_time.timestamp()
    return job.submission_time if isinstance(job, TorchJob) else math.inf


def _admitted_at(before: TorchJobStatus, now: float) -> float:
    admitted = before.admission.admitted_at if before.admission else None
    return admitted.timestamp() if admitted else now


def _has_run(before: TorchJobStatus) -> bool:
    """Return whether a job has run since its admission, as far as whole seconds tell."""
    running = conditions.find(before.conditions, "Running")
    if running is None:
        return False
    return running.status == "True" or running.last_transition_time.timestamp() >= _admitted_at(before, 0.0)


def _condition(status: Mapping[str, Any], kind: ConditionType) -> Mapping[str, Any]:
    return next((each for each in status.get("conditions") or () if each.get("type") == kind), {})


def is_taken(status: Mapping[str, Any], change: Mapping[str, Any]) -> bool:
    """Return whether a status has everything that a merge patch wrote."""
    return all(
        status.get(name) is None
        if value is None
        else is_taken(status[name], value)
        if isinstance(value, Mapping) and isinstance(status.get(name), Mapping)
        else status.get(name) == value
        for name, value in change.items()
    )


def with_change(status: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return a status with a merge patch (RFC 7396)."""
    after = {name: value for name, value in status.items() if name not in change}
    for name, value in change.items():
        if isinstance(value, Mapping):
            before = status.get(name)
            after[name] = with_change(before if isinstance(before, Mapping) else {}, value)
        elif value is not None:
            after[name] = value
    return after


def life_event(job: TorchJob | InvalidJob, status: Mapping[str, Any]) -> EmitEvent | None:
    """Return the Event about the change from the earlier status of a job to the written status; None if the change
    needs no Event.
    """
    before, phase = job.status, status.get("phase", "")
    if admits(before, status):
        return EmitEvent("Admitted", _message(status, "Admitted"))
    if phase == before.phase:
        return None
    match phase:
        case "Queued" if before.admission is None:  # a job that was sent back has an Event that says why
            return EmitEvent("Queued", _message(status, "Queued"))
        case "Running":
            restarts = int(status.get("restartGeneration") or 0)
            after = f", after {restarts} restart{'s' * (restarts > 1)}" if restarts else ""
            return EmitEvent("Running", _message(status, "Running") + after)
        case "Succeeded":
            return EmitEvent("Succeeded", _message(status, "Succeeded"))
    return None


def _message(status: Mapping[str, Any], kind: ConditionType) -> str:
    return str(_condition(status, kind).get("message") or kind)
