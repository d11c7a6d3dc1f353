"""What a job's status says of what set it back: restarts, disruptions, nodes to avoid.

One rule: pure. Whatever is counted is counted in the patch that says which pods it was, and before any of them is
touched.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from crds import integers
from crds.torchjob.restart_requests import RestartRequest
from crds.torchjob.status import MOST_AT_ONCE, TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import backoff, status
from reconcilers.plan.failures import Verdict
from reconcilers.settings import ReconcileSettings
from reconcilers.views.pod_view import PodView

MOST_NODES = 64


def restarted(
    job: TorchJob, verdict: Verdict, pods: Iterable[PodView], now: datetime, settings: ReconcileSettings
) -> TorchJobStatus:
    """One restart more, or one disruption; the room stays. A job of which single pods are replaced keeps running.

    When its pods may be made again is in the same status (`backoff`). A node that has failed `node_failures` times is
    avoided from then on.
    """
    paused = job.status.model_copy(update=_paused(job, verdict, settings, now))
    known = job.model_copy(update={"status": paused})
    message = verdict.message + backoff.said(paused, settings, now)
    after = _whole(known, message, now) if verdict.whole else _single(known, verdict.marks, pods)
    field = "disruptions" if verdict.kind == "Disruption" else "restart_count"
    failures = _blamed(after.node_failures, verdict.node)
    avoided = (node for node, times in failures.items() if times >= settings.node_failures)
    return after.model_copy(
        update={
            field: getattr(after, field) + 1,
            "node_failures": failures,
            "excluded_nodes": tuple(sorted(avoided)),
        }
    )


def _paused(job: TorchJob, verdict: Verdict, settings: ReconcileSettings, now: datetime) -> dict[str, Any]:
    waiting = () if verdict.whole else verdict.pods
    if verdict.kind == "Disruption":
        return backoff.disrupted(job.status, waiting, settings, now)
    return backoff.counted(job.key, job.status, waiting, settings, now)


def obeyed(job: TorchJob, request: RestartRequest, now: datetime) -> TorchJobStatus:
    """The restart of the whole job that its owner asked for: it costs nothing."""
    after = _whole(job, "its owner asked for a restart", now).model_copy(update=backoff.at_once(job.status, now))
    recreate = {"recreate_generation": after.restart_generation} if request.how == "Recreate" else {}
    return after.model_copy(update={"restart_request": request.id, **recreate})


def given_up(job: TorchJob, marks: Iterable[str], pods: Iterable[PodView]) -> TorchJobStatus:
    """Single pods are to be replaced, which costs nothing."""
    return _single(job, tuple(marks), pods)


def newly_excluded(before: TorchJobStatus, after: TorchJobStatus) -> tuple[str, ...]:
    """The nodes that are avoided from now on."""
    return tuple(node for node in after.excluded_nodes if node not in before.excluded_nodes)


def current(job: TorchJob, pods: Iterable[PodView]) -> tuple[str, ...]:
    """What is still to be seen of what was counted."""
    there = {pod.uid: pod for pod in pods}
    found = (mark.partition("/") for mark in job.status.replacing)
    return tuple(
        uid + slash + number
        for uid, slash, number in found
        if uid in there and not (slash and there[uid].settled >= integers.bounded(number, integers.LARGEST))
    )


def _whole(job: TorchJob, message: str, now: datetime) -> TorchJobStatus:
    after = status.enter(job, "Admitted", "Restarting", message, now)
    return after.model_copy(update={"restart_generation": job.status.restart_generation + 1, "replacing": ()})


def _single(job: TorchJob, marks: Iterable[str], pods: Iterable[PodView]) -> TorchJobStatus:
    known = current(job, pods)
    more = tuple(each for each in marks if each not in known)
    replacing = (known + more)[:MOST_AT_ONCE]
    return status.seen(job).model_copy(update={"replacing": replacing})


def _blamed(failures: Mapping[str, int], node: str) -> dict[str, int]:
    """One failure more of a node; of too many nodes the least bad are forgotten."""
    counts = dict(failures)
    if node:
        counts[node] = counts.get(node, 0) + 1
    worst = sorted(counts, key=lambda each: (-counts[each], each != node, each))[:MOST_NODES]
    return {each: counts[each] for each in sorted(worst)}
