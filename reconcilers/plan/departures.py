"""Pods that leave their nodes before they lose them.

One rule: pure. Such a pod is deleted with its grace, so that its program can save, and is created elsewhere. That is
neither a failure nor a disruption, however the pod then ends.

    found                                                what follows
    the pod has the condition DisruptionTarget           it leaves
    its node has one of the taints `leaving_taints`      it leaves
    its node is cordoned, and the others on which the    it leaves
    job may run could hold it with its least number of
    workers
    its node is cordoned, and the others could not       it stays until it is evicted
    its node is cordoned, and the job refuses evictions  it stays
    it is on a node that it was created to avoid         it stays: whoever bound it there would do so again
    its node ended it, and was about to go away anyway   it has left, as above
    its node was lost, or ended the pod without notice   nothing here: `failures` judges the pod
    a scheduler preempts it, or reclaims its room        nothing here: `failures` judges the pod once it is deleted
    a pod of its world has succeeded                     nothing here: nobody can join the others any more

The others go on without the pod, or restart with it, as after a failure of that pod (`failures.is_whole`).

A preempted pod is a disruption. A preempted pod has left no node that is about to go away, so no node is avoided
because of the pod. The room of a preempted pod has gone to another job. So an elastic job gives up a worker that finds
no other room, as it gives up a worker that has left its node.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from crds.torchjob.status import MOST_AT_ONCE, MOST_LEFT, Departure, TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import failures, rendezvous, restart_counts
from reconcilers.pods.task_members import LABELS_CHANGED, PodMember
from reconcilers.values import EmitEvent
from reconcilers.views import pod_view
from reconcilers.views.pod_view import PodView

EVENT = "NodeLeaving"
ENDED_BY_THE_NODE = frozenset({"DeletionByPodGC", "DeletionByTaintManager", "TerminationByKubelet"})
"""The reasons of the condition DisruptionTarget by which a node is lost, or ends the pod itself."""
NOT_ANNOUNCED = ENDED_BY_THE_NODE | pod_view.BY_SCHEDULER | {LABELS_CHANGED.partition(":")[0]}
"""The reasons after which there is nothing to leave early. Who gives one has deleted the pod by the next call, or the
node has ended it."""


@dataclass(frozen=True, slots=True)
class LeavingPod:
    """A pod that leaves its node, and why."""

    pod: PodView
    why: str


def find(job: TorchJob, pods: Sequence[PodView], nodes: Mapping[str, str]) -> tuple[LeavingPod, ...]:
    """Return the pods that leave their nodes. `nodes` are the nodes that lose their pods, each with the reason."""
    if rendezvous.has_succeeded(job, pods):
        return ()
    alone = rendezvous.find_closing_tasks(job, pods) if nodes or any(pod.disruption for pod in pods) else frozenset()
    return tuple(LeavingPod(pod, why) for pod in pods if pod.task not in alone and (why := _reason(pod, nodes)))


def _reason(pod: PodView, nodes: Mapping[str, str]) -> str:
    """Return why a pod leaves its node; empty if it does not."""
    has_ended, announced = pod.finished and not pod.deleting, pod.disruption.partition(": ")[0]
    if announced and announced not in NOT_ANNOUNCED and not has_ended:
        return f"is to be evicted ({announced})" if pod.phase != "Succeeded" else ""
    if pod.phase == "Succeeded" or pod.node not in nodes or pod.node in pod.avoids.split(","):
        return ""
    if has_ended and not failures.is_disrupted(pod):
        return ""
    return f"leaves node {pod.node}, which {nodes[pod.node]}"


def unhandled(job: TorchJob, leaving: Iterable[LeavingPod]) -> tuple[LeavingPod, ...]:
    """Return the leaving pods about which nothing is written yet: others are being replaced, or restarted."""
    handled = frozenset(job.status.replacing)
    current = job.status.restart_generation
    return tuple(entry for entry in leaving if entry.pod.restart == current and entry.pod.uid not in handled)


def depart(job: TorchJob, leaving: Sequence[LeavingPod], pods: Iterable[PodView], now: datetime) -> TorchJobStatus:
    """Return the status in which pods leave their nodes. Nothing is counted."""
    lost = sum(rendezvous.meets_others(job, entry.pod) for entry in leaving)
    is_whole = any(failures.is_whole(job, entry.pod) for entry in leaving)
    if is_whole or rendezvous.uses_up_restarts(job, lost):
        after = restart_counts.restart_job(job, describe(leaving), now)
    else:
        after = restart_counts.replace_pods(job, (entry.pod.uid for entry in leaving), pods)
    departed = job.status.departed | {entry.pod.name: _departure(job, entry.pod, now) for entry in leaving}
    return after.model_copy(update={"departed": dict(islice(departed.items(), MOST_AT_ONCE))})


def _departure(job: TorchJob, pod: PodView, now: datetime) -> Departure:
    """Return the departure of a pod; it began earlier if the pod has not run since it left another node."""
    before = job.status.departed.get(pod.name)
    if before is None:
        return Departure(node=pod.node, since=now)
    # All earlier nodes are kept: a pod that tolerates everything would be moved from one such node to the other for
    # ever.
    earlier = dict.fromkeys(name for name in (before.node, *before.earlier) if name not in ("", pod.node))
    return Departure(node=pod.node, earlier=tuple(earlier)[:MOST_LEFT], since=before.since)


def describe(leaving: Sequence[LeavingPod]) -> str:
    """Return a sentence about leaving pods."""
    names = pod_view.list_names([entry.pod.name for entry in leaving])
    return f"{names}: {leaving[0].why}" if len(leaving) > 1 else f"pod {names} {leaving[0].why}"


def event(leaving: Sequence[LeavingPod]) -> EmitEvent:
    """Return the Event for pods that leave their nodes."""
    return EmitEvent(EVENT, f"{describe(leaving)}; deleted with the grace period, and made elsewhere")


def remaining(job: TorchJob, members: Mapping[str, PodMember], pods: Iterable[PodView]) -> dict[str, Departure]:
    """Return the departures of pods that do not run elsewhere yet."""
    settled = {pod.name for pod in pods if _has_arrived(job, pod)}
    return {name: gone for name, gone in job.status.departed.items() if name in members and name not in settled}


def _has_arrived(job: TorchJob, pod: PodView) -> bool:
    """Return whether a pod runs, or has succeeded, since it was created elsewhere."""
    is_new = pod.restart == job.status.restart_generation and pod.uid not in job.status.replacing
    return is_new and (pod.phase == "Succeeded" or (pod.running and not pod.gated))
