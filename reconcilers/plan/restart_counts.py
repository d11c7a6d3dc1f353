"""The counts of restarts, disruptions and failing nodes in a job's status.

One rule: pure. A failure is counted in the same patch that names its pods, before any of these pods is changed.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import islice
from typing import Any

from crds import integers
from crds.torchjob.restart_requests import RestartRequest
from crds.torchjob.status import MOST_AT_ONCE, Departure, TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import backoff, rendezvous, status
from reconcilers.plan.failures import JobVerdict
from reconcilers.settings import ReconcileSettings
from reconcilers.views.pod_view import PodView, is_preempted

MOST_NODES = 64


def count_failure(
    job: TorchJob, verdict: JobVerdict, pods: Iterable[PodView], now: datetime, settings: ReconcileSettings
) -> TorchJobStatus:
    """Count one restart or one disruption; the job keeps its resources. If only single pods are replaced, it keeps
    running.

    The same status holds the time when its pods may be created again (`backoff`). A node that has failed
    `node_failures` times is avoided from then on.
    """
    pods = tuple(pods)
    paused = job.status.model_copy(update=_pause(job, verdict, settings, now))
    updated = job.model_copy(update={"status": paused})
    message = verdict.message + backoff.describe(paused, settings, now)
    after = (
        restart_job(updated, message, now, verdict.reason)
        if verdict.whole
        else replace_pods(updated, verdict.marks, pods)
    )
    field = "disruptions" if verdict.kind == "Disruption" else "restart_count"
    failures = _count_node_failure(after.node_failures, verdict.node)
    # Where the node itself restarts containers, this node is the only node, so no pod could go elsewhere.
    most = settings.node_failures if settings.in_place != "local" else integers.LARGEST
    avoided = (node for node, times in failures.items() if times >= most)
    return after.model_copy(
        update={
            field: getattr(after, field) + 1,
            "early_failure": verdict.early,
            "memory": {**after.memory, **verdict.memory},
            "node_failures": failures,
            "excluded_nodes": tuple(sorted(avoided)),
            "departed": _departed(job, verdict, pods, now),
        }
    )


def _departed(job: TorchJob, verdict: JobVerdict, pods: Iterable[PodView], now: datetime) -> dict[str, Departure]:
    """Return the departed pods with the preempted ones of an elastic job, whose room went to another job: such a job
    gives up a worker that finds no other room, as it gives up a worker that has left its node."""
    names = frozenset(verdict.pods if job.spec.is_elastic else ())
    lost = (pod.name for pod in pods if pod.name in names and is_preempted(pod))
    return dict(islice((dict(job.status.departed) | dict.fromkeys(lost, Departure(since=now))).items(), MOST_AT_ONCE))


def _pause(job: TorchJob, verdict: JobVerdict, settings: ReconcileSettings, now: datetime) -> dict[str, Any]:
    waiting = () if verdict.whole else verdict.pods
    if verdict.kind == "Disruption":
        return backoff.count_disruption(job.status, waiting, settings, now)
    return backoff.count_restart(job.key, job.status, waiting, settings, now)


def restart_on_request(job: TorchJob, request: RestartRequest, now: datetime) -> TorchJobStatus:
    """Restart the whole job at its owner's request, which is not counted."""
    after = restart_job(job, "its owner asked for a restart", now).model_copy(update=backoff.end_pause(job.status, now))
    recreate = {"recreate_generation": after.restart_generation} if request.how == "Recreate" else {}
    return after.model_copy(update={"restart_request": request.id, "early_failure": "", **recreate})


def new_exclusions(before: TorchJobStatus, after: TorchJobStatus) -> tuple[str, ...]:
    """Return the nodes that are avoided from now on."""
    return tuple(node for node in after.excluded_nodes if node not in before.excluded_nodes)


def remaining_marks(job: TorchJob, pods: Iterable[PodView]) -> tuple[str, ...]:
    """Return the marks of counted failures whose pods still exist."""
    by_uid = {pod.uid: pod for pod in pods}
    marks = (mark.partition("/") for mark in job.status.replacing)
    return tuple(
        uid + slash + number
        for uid, slash, number in marks
        if uid in by_uid and not (slash and by_uid[uid].counted_restarts >= integers.parse(number, integers.LARGEST))
    )


def restart_job(job: TorchJob, message: str, now: datetime, reason: str = "Restarting") -> TorchJobStatus:
    """Restart the whole job, which is not counted."""
    after = status.enter(job, "Admitted", reason, message, now)
    number = job.status.restart_generation + 1
    update = {"restart_generation": number, "replacing": (), "training_restarts": 0, "blocked_since": None}
    return after.model_copy(update={**update, "stages": rendezvous.stages_after_restart(job)})


def replace_pods(job: TorchJob, marks: Iterable[str], pods: Iterable[PodView]) -> TorchJobStatus:
    """Mark single pods for replacement, which is not counted."""
    by_uid = {pod.uid: pod for pod in pods}
    open_marks = remaining_marks(job, by_uid.values())
    more = tuple(mark for mark in marks if mark not in open_marks)
    replacing = (open_marks + more)[:MOST_AT_ONCE]
    after = status.observe_generation(job).model_copy(update={"replacing": replacing})
    replaced = (by_uid.get(mark.partition("/")[0]) for mark in more)
    lost = sum(pod is not None and rendezvous.meets_others(job, pod) for pod in replaced)
    return after.model_copy(update={"training_restarts": after.training_restarts + lost}) if lost else after


def count_removal(job: TorchJob, after: TorchJobStatus) -> TorchJobStatus:
    """Count the restart of the training processes of all other workers after some of them were removed."""
    number = after.training_restarts + 1
    return after.model_copy(update={"training_restarts": number}) if job.spec.rendezvous else after


def _count_node_failure(failures: Mapping[str, int], node: str) -> dict[str, int]:
    """Count one more failure of a node; if there are too many nodes, the nodes with the fewest failures are dropped."""
    counts = dict(failures)
    if node:
        counts[node] = counts.get(node, 0) + 1
    worst = sorted(counts, key=lambda name: (-counts[name], name != node, name))[:MOST_NODES]
    return {name: counts[name] for name in sorted(worst)}
