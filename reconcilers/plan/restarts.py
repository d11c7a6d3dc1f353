"""Restarts of containers in place: the pod keeps its name, address, resources and gang.

One rule: pure, one step at a time, from the state of pods and requests to the next actions. A restart that is late or
fails is done by replacing the pod; only the node's report makes it a success.

    driver       how a restart is requested             when it is done
    local        an annotation on the pod               the pod's condition says so, for the same restart
    kruise       a ContainerRecreateRequest per pod     the request completed without an error message, every
                                                        container succeeded, and the main one has been restarted
    kubernetes   it cannot be requested                 -
    recreate     it is not requested                    -

`kubernetes` is Kubernetes' own RestartAllContainers, which a node does when a container exits with a certain code. The
pod that fails restarts itself, but the restart of another pod cannot be requested from outside. So all other pods are
replaced, and a restart of the whole job replaces all of them.

A restart of the whole job replaces pods that are not healthy, and pods whose node would not start again what Kruise
ends. The other pods are restarted in place, every rank 0 before the pods that connect to it. A completed pod is marked
with the job's generation. No new pod is created as long as a pod of an earlier generation exists.

A main container that ends with 0 while a restart is asked for has not succeeded (`in_place.interruptions`). Where its
node does not start it again, the pod is replaced at once.

The rendezvous store of an elastic job keeps running, unless its pods are to be replaced: the others meet there under a
new name, which is an annotation of their pods. If the store is lost they are restarted at once all the same, because
they end by themselves soon after it, and wait for the new one.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from crds import labels, timestamps
from crds.api_resources import PODS, RECREATE_REQUESTS
from crds.torchjob.memory_growth import MEMORY
from crds.torchjob.tasks import RENDEZVOUS
from crds.torchjob.torchjob import CLOCK_SKEW, TorchJob
from kube.api import Manifest
from reconcilers.plan.in_place import interruptions
from reconcilers.plan.pod_deletion import PodDeletion
from reconcilers.pods import environment
from reconcilers.settings import ReconcileSettings
from reconcilers.values import Action, CreateObject, DeleteObject, PatchPodMetadata, earliest
from reconcilers.views import containers
from reconcilers.views.pod_view import PodView
from reconcilers.views.recreate_request import RecreateView

REQUESTING_DRIVERS = ("local", "kruise")
"""The drivers by which a restart can be requested."""
LONGEST_NAME = 63
KEPT = 600
"""The seconds for which a request is kept after its end, so that people can read it."""
UNPLANNED = 10**15
"""The first number of restarts of single pods, which do not change the generation."""
SHORTEST = 3
"""The shortest time limit of a request, in seconds."""


State = Literal["NotAsked", "InProgress", "Done", "Failed"]


@dataclass(frozen=True, slots=True)
class RestartProgress:
    """The progress of the restart of one pod's containers."""

    state: State
    why: str = ""
    remaining: float | None = None
    """The seconds until the time limit."""


@dataclass(frozen=True, slots=True)
class RestartStep:
    """The next step of a restart."""

    actions: tuple[Action, ...] = ()
    blocked: bool = False
    """Whether pods of an earlier generation exist: new pods must not meet them."""
    done: bool = False
    """Whether the last pod is completed, and at least one was restarted in place."""
    failed: tuple[tuple[PodView, str], ...] = ()
    """The pods that were not restarted in place, with the reason: they have to be replaced."""
    requeue_after: float | None = None
    """Seconds after which the step may change although no event arrives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """One job's pods, and the requests created for them."""

    job: TorchJob
    pods: tuple[PodView, ...]
    requests: tuple[RecreateView, ...]
    leads: frozenset[str]
    """The names of the pods that other pods connect to."""
    deletion: PodDeletion
    settings: ReconcileSettings
    leaving: frozenset[str] = frozenset()
    """The uids of the pods that leave their nodes, so that they are replaced."""
    waits: bool = False
    """Whether the job backs off: healthy pods are not restarted yet."""
    memory: Mapping[str, int] = field(default_factory=dict)
    """The memory that a pod of a task must request to be restarted in place, by task in lower case."""

    @property
    def generation(self) -> int:
        """The generation to which all pods are brought."""
        return self.job.status.restart_generation

    def pods_in_restart(self) -> frozenset[str]:
        """Return the uids of the pods whose containers are being restarted on request."""
        if self.settings.in_place not in REQUESTING_DRIVERS:
            return frozenset()
        return frozenset(pod.uid for pod in self.pods if self._progress(pod, "").state != "NotAsked")

    def job_step(self) -> RestartStep:
        """Return the next step of a restart of the whole job; empty if none is under way."""
        outdated = tuple(pod for pod in self.pods if pod.restart != self.generation)
        if not outdated:
            return RestartStep()
        kept = tuple(pod for pod in outdated if self._stays(pod))
        restarted = [pod for pod in outdated if pod not in kept and self._in_place(pod)]
        unhealthy = tuple(pod for pod in outdated if pod not in kept and not self._in_place(pod))
        first = any(pod.name in self.leads for pod in outdated)
        healthy = [pod for pod in restarted if not first or pod.name in self.leads]
        by_state = self._by_state(healthy, str(self.generation))
        failed, completed = by_state["Failed"], (*kept, *(pod for pod, _ in by_state["Done"]))
        return RestartStep(
            actions=(
                *self.deletion.delete(unhealthy + tuple(pod for pod, _ in failed)),
                *self.request_restart(() if self.waits else tuple(pod for pod, _ in by_state["NotAsked"]), ""),
                *self._mark_done(completed, str(self.generation)),
            ),
            blocked=bool(outdated),
            done=bool(completed) and len(completed) == len(outdated),
            failed=(*ended_pods(unhealthy), *((pod, progress.why) for pod, progress in failed)),
            requeue_after=earliest(progress.remaining for _, progress in by_state["InProgress"]),
        )

    def pod_step(self) -> RestartStep:
        """Return the next step of restarts of single pods."""
        to_replace = frozenset(self.job.status.replacing)
        current = [pod for pod in self.pods if pod.restart == self.generation and pod.uid not in to_replace]
        ended = ended_pods(current)
        if self.settings.in_place not in REQUESTING_DRIVERS:
            return RestartStep(failed=ended)
        given_up = frozenset(pod.uid for pod, _ in ended)
        waiting = (
            pod
            for pod in current
            if not pod.finished or (interruptions.is_interrupted(pod) and pod.uid not in given_up)
        )
        by_state = self._by_state((pod for pod in waiting if not pod.deleting), "")
        return RestartStep(
            actions=self._mark_done(tuple(pod for pod, _ in by_state["Done"])),
            failed=(*ended, *((pod, progress.why) for pod, progress in by_state["Failed"])),
            requeue_after=earliest(progress.remaining for _, progress in by_state["InProgress"]),
        )

    def _by_state(self, pods: Iterable[PodView], purpose: str) -> dict[State, list[tuple[PodView, RestartProgress]]]:
        """Return the pods by the state of the restart of their containers."""
        by_state: dict[State, list[tuple[PodView, RestartProgress]]] = {
            "NotAsked": [],
            "InProgress": [],
            "Done": [],
            "Failed": [],
        }
        for pod in pods:
            progress = self._progress(pod, purpose)
            by_state[progress.state].append((pod, progress))
        return by_state

    def can_restart(self, pod: PodView) -> bool:
        """Return whether a pod's containers can be restarted in place, and are to be.

        The pod's node has to start again what a request ends. If it does not, no container of the pod would be left.
        """
        is_going = pod.uid in self.leaving or pod.uid in self.job.status.replacing
        is_up = pod.started and pod.node not in self.deletion.dead and not is_going
        return is_up and (
            self.settings.in_place == "local" or (self.settings.in_place == "kruise" and self._is_self_healing(pod))
        )

    def _is_self_healing(self, pod: PodView) -> bool:
        """Return whether the pod's node starts its containers again when they end."""
        policies = {name.lower(): task.restart_policy for name, task in self.job.spec.torch_task_specs.items()}
        return pod.self_healing or policies[pod.task] == "Always"

    def request_restart(self, pods: tuple[PodView, ...], request: str) -> tuple[Action, ...]:
        """Request a restart of the containers of pods: for the job's generation, or for the owner's request of this
        id."""
        if not pods:
            return ()
        if self.settings.in_place == "kruise":
            named = (PatchPodMetadata(pods, {"annotations": note}),) if (note := _rendezvous(self.job)) else ()
            # A restart of all pods is in the status; that of a single pod has to be on the pod, whose view may be newer
            # than that of the request.
            marked = _mark_asked(pods, self._purpose(request), self.deletion.now) if request else ()
            return (*named, *marked, *(CreateObject(RECREATE_REQUESTS, self._request(pod, request)) for pod in pods))
        annotations = {
            labels.RESTART_CONTAINERS: self._purpose(request),
            labels.RESTART_REQUESTED_AT: timestamps.format_time(self.deletion.now),
        }
        return (PatchPodMetadata(pods, {"annotations": annotations | _rendezvous(self.job)}),)

    def _in_place(self, pod: PodView) -> bool:
        is_current = pod.restart >= self.job.status.recreate_generation
        has_enough = dict(pod.requests).get(MEMORY, 0) >= self.memory.get(pod.task, 0)
        return self.can_restart(pod) and is_current and has_enough

    def _stays(self, pod: PodView) -> bool:
        """Return whether a pod is the rendezvous store and keeps running."""
        is_alive = pod.running and pod.node not in self.deletion.dead and pod.uid not in self.leaving
        return _is_store(self.job, pod) and is_alive and pod.restart >= self.job.status.recreate_generation

    def _purpose(self, request: str) -> str:
        """Return a number that no other restart has: nodes compare it, and people recognise the generation in it."""
        if not request:
            return str(self.generation)
        return str(UNPLANNED + int(hashlib.sha256(request.encode()).hexdigest()[:12], 16))

    def _progress(self, pod: PodView, purpose: str) -> RestartProgress:
        """Return the progress of a pod's restart for a purpose; of any unfinished restart if the purpose is empty."""
        match self.settings.in_place:
            case "local":
                return self._by_annotation(pod, purpose)
            case "kruise":
                return self._by_request(pod)
        return RestartProgress("NotAsked")

    def _by_annotation(self, pod: PodView, purpose: str) -> RestartProgress:
        if (
            not pod.requested_restart
            or pod.restart_requested_at is None
            or (purpose and pod.requested_restart != purpose)
        ):
            return RestartProgress("NotAsked")
        if pod.completed_restart == pod.requested_restart:
            return RestartProgress("Done" if purpose else "NotAsked")
        what_for, _, why = pod.failed_restart.partition(": ")
        return self._check_timeout(pod.restart_requested_at, why if what_for == pod.requested_restart else "")

    def _by_request(self, pod: PodView) -> RestartProgress:
        requests = [
            candidate
            for candidate in self.requests
            if candidate.pod_uid == pod.uid
            and candidate.generation == self.generation
            and candidate.restarts >= pod.counted_restarts
        ]
        if not requests and interruptions.is_marked(pod):
            return self._check_timeout(pod.restart_requested_at, "")
        if not requests:
            return RestartProgress("NotAsked")
        newest = max(requests, key=lambda candidate: candidate.created or 0.0)
        if newest.verdict == "Done" and pod.restarts > newest.restarts and pod.running:
            return RestartProgress("Done")
        why = (newest.message or "it failed") if newest.verdict == "Failed" else ""
        return self._check_timeout(newest.created, why)

    def _check_timeout(self, since: float | None, failed: str) -> RestartProgress:
        remaining = self.settings.in_place_timeout - (self.deletion.now - since) if since is not None else 0.0
        if failed:
            return RestartProgress("Failed", failed)
        # A user may have written the time: one far in the future would never pass.
        if remaining <= 0 or remaining > self.settings.in_place_timeout + CLOCK_SKEW:
            return RestartProgress("Failed", f"not done within {self.settings.in_place_timeout:g} s")
        return RestartProgress("InProgress", remaining=remaining)

    def _mark_done(self, pods: tuple[PodView, ...], purpose: str = "") -> tuple[Action, ...]:
        """Mark pods as brought to the generation, and their restarts as counted.

        The request disappears after a while; from then on the pod itself records the purpose.
        """
        counts = self.settings.in_place == "kruise"
        return tuple(
            PatchPodMetadata(group, _done_marks(self.generation, count, purpose if counts else ""))
            for count, group in _by_restarts(pods, lambda pod: counts or pod.self_healing).items()
        )

    def _request(self, pod: PodView, request: str) -> Manifest:
        """Return a ContainerRecreateRequest for all containers of exactly this pod, once."""
        metadata = self.job.metadata
        return {
            "apiVersion": RECREATE_REQUESTS.api_version,
            "kind": RECREATE_REQUESTS.kind,
            "metadata": {
                "name": request_name(pod.name, self._purpose(request)),
                "namespace": metadata.namespace,
                "labels": {
                    labels.JOB_NAME: metadata.name,
                    labels.JOB_UID: metadata.uid,
                    labels.RESTART: str(self.generation),
                },
                "annotations": {labels.POD_UID: pod.uid, labels.RESTARTS_HANDLED: str(pod.restarts)},
                "ownerReferences": [
                    {"apiVersion": PODS.api_version, "kind": PODS.kind, "name": pod.name, "uid": pod.uid}
                ],
            },
            "spec": {
                "podName": pod.name,
                "containers": [{"name": name} for name in _containers(self.job, pod)],
                "strategy": {"failurePolicy": "Fail", "orderedRecreate": True},
                "activeDeadlineSeconds": max(SHORTEST, math.ceil(self.settings.in_place_timeout)),
                "ttlSecondsAfterFinished": KEPT,
            },
        }


def ended_pods(pods: Iterable[PodView]) -> tuple[tuple[PodView, str], ...]:
    """Return the pods whose main container ended because its restart is asked for, and is not started again, with the
    reason."""
    return tuple((pod, interruptions.ENDED) for pod in pods if interruptions.is_final(pod) and not pod.deleting)


def _by_restarts(
    pods: Iterable[PodView], counts: Callable[[PodView], bool] = lambda _: True
) -> dict[int, tuple[PodView, ...]]:
    """Return the pods by their numbers of restarts, in order; 0 for a pod whose restarts do not count."""
    found: dict[int, tuple[PodView, ...]] = {}
    for pod in pods:
        count = pod.restarts if counts(pod) else 0
        found[count] = (*found.get(count, ()), pod)
    return dict(sorted(found.items()))


def _mark_asked(pods: tuple[PodView, ...], purpose: str, now: float) -> tuple[Action, ...]:
    """Mark pods as asked to restart, each with its number of restarts until then."""
    asked_at = {labels.RESTART_REQUESTED_AT: timestamps.format_time(now)}
    marks = {group: interruptions.mark(purpose, group[0]) for group in _by_restarts(pods).values()}
    return tuple(
        PatchPodMetadata(group, {"annotations": asked_at | {labels.RESTART_CONTAINERS: text}})
        for group, text in marks.items()
    )


def _done_marks(generation: int, restarts: int, purpose: str) -> dict[str, Any]:
    """Return the marks of a pod that was brought to a generation, with its counted restarts. `purpose` is what a
    separate object requested, which disappears."""
    notes: dict[str, str | None] = {labels.RESTARTS_HANDLED: str(restarts)} if restarts else {}
    if purpose:
        notes |= {labels.RESTART_CONTAINERS: purpose, labels.RESTART_REQUESTED_AT: None}
    metadata: dict[str, Any] = {"labels": {labels.RESTART: str(generation)}}
    return metadata | ({"annotations": notes} if notes else {})


def _is_store(job: TorchJob, pod: PodView) -> bool:
    return job.spec.rendezvous and pod.task == RENDEZVOUS.lower()


def _rendezvous(job: TorchJob) -> dict[str, str]:
    """Return the annotation by which pods of the job's generation meet; empty if they do not meet at a store."""
    return {labels.RENDEZVOUS_ID: environment.rendezvous_id(job)} if job.spec.rendezvous else {}


def mark_counted(job: TorchJob, pods: Iterable[PodView]) -> tuple[Action, ...]:
    """Record on pods that their nodes restarted that these restarts are counted."""
    counted = {uid: int(number) for uid, _, number in (mark.partition("/") for mark in job.status.replacing) if number}
    pending = (pod for pod in pods if pod.counted_restarts < counted.get(pod.uid, 0))
    return tuple(
        PatchPodMetadata((pod,), {"annotations": {labels.RESTARTS_HANDLED: str(counted[pod.uid])}}) for pod in pending
    )


def delete_orphans(requests: Iterable[RecreateView], pods: Iterable[PodView]) -> tuple[Action, ...]:
    """Delete requests for pods that no longer exist."""
    uids = {pod.uid for pod in pods}
    orphans = (request for request in requests if request.pod_uid not in uids)
    return tuple(DeleteObject(RECREATE_REQUESTS, request.name, request.uid) for request in orphans)


def request_name(pod: str, purpose: str) -> str:
    """Return the name of a request, unique for a pod and a purpose."""
    name = f"{pod}-{purpose}"
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:10]
    return f"{pod[: LONGEST_NAME - 11]}-{digest}"


def _containers(job: TorchJob, pod: PodView) -> list[str]:
    """Return the names of a pod's containers, the main one first: the others may wait for it."""
    task = next(task for name, task in job.spec.torch_task_specs.items() if name.lower() == pod.task)
    spec = task.template["spec"]
    main = containers.main(spec)["name"]
    return sorted((container["name"] for container in spec["containers"]), key=lambda name: name != main)
