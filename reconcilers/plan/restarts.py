"""Restart containers in place: the pod stays, with its name, address, room and gang.

One rule: pure, one step at a time: from what pods and requests look like to what is to be done next. Whatever does not
come off in time, or ends badly, is done by replacing the pod; nothing but its node's word makes it a success.

    driver       asks by                                done when
    local        an annotation on the pod               the pod's condition says so, for the same restart
    kruise       a ContainerRecreateRequest per pod     the request completed, says nothing against itself, every
                                                        container succeeded, and the main one has been restarted
    kubernetes   nobody can ask                         -
    recreate     nobody does                            -

`kubernetes` is Kubernetes' own RestartAllContainers, which a node does when a container exits with a certain code: the
pod that fails restarts itself (`restarted_by_node`), but there is no way to have another one restarted from outside.
So all other pods are replaced, and a restart of the whole job replaces all of them.

A restart of the whole job: pods that are not well, or whose node would not start again what Kruise ends, are replaced,
the others restarted in place, every rank 0 before those who look for it. A pod that is through is marked with the job's
generation. As long as one of an earlier generation is there no new pod is made.
"""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from crds import labels
from crds.api_resources import PODS, RECREATE_REQUESTS
from crds.torchjob.torchjob import CLOCK_SKEW, TorchJob
from kube.api import Manifest
from reconcilers.plan.pod_deletion import Departures
from reconcilers.settings import ReconcileSettings
from reconcilers.values import Action, Make, MarkPods, Remove
from reconcilers.views import containers, timestamps
from reconcilers.views.pod_view import PodView
from reconcilers.views.recreate_request import RecreateView

ASKING = ("local", "kruise")
"""The drivers by which a restart can be asked for."""
LONGEST_NAME = 63
KEPT = 600
"""Seconds that a request is kept after its end, for people to look at."""
UNPLANNED = 10**15
"""Restarts of single pods, which do not change the generation, have numbers from here on."""
SHORTEST = 3
"""Seconds; the least time a request may be given."""


State = Literal["NotAsked", "InProgress", "Done", "Failed"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the restart of one pod's containers is."""

    state: State
    why: str = ""
    left: float | None = None
    """Seconds until it is too late."""


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done next."""

    actions: tuple[Action, ...] = ()
    blocked: bool = False
    """Whether pods of an earlier generation are there: no new one may meet them."""
    done: bool = False
    """Whether the last of them is through, and at least one has been restarted in place."""
    failed: tuple[tuple[PodView, str], ...] = ()
    """Pods that were not restarted in place, and why: they have to be replaced."""
    again: float | None = None
    """Seconds after which time alone changes something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """One job's pods, and the requests made for them."""

    job: TorchJob
    pods: tuple[PodView, ...]
    requests: tuple[RecreateView, ...]
    leads: frozenset[str]
    """Names of the pods that others look for."""
    departures: Departures
    settings: ReconcileSettings
    waits: bool = False
    """Whether the job backs off: pods that are well are not restarted yet."""

    @property
    def generation(self) -> int:
        """The one all pods are to be brought to."""
        return self.job.status.restart_generation

    def restarting(self) -> frozenset[str]:
        """Uids of the pods whose containers are being restarted on purpose."""
        if self.settings.in_place not in ASKING:
            return frozenset()
        return frozenset(pod.uid for pod in self.pods if self._progress(pod, "").state != "NotAsked")

    def step(self) -> Step:
        """The next step of a restart of the whole job; nothing if none is under way."""
        outdated = tuple(pod for pod in self.pods if pod.restart != self.generation)
        if not outdated:
            return Step()
        ill = tuple(pod for pod in outdated if not self._in_place(pod))
        first = any(pod.name in self.leads for pod in outdated)
        well = [pod for pod in outdated if self._in_place(pod) and (not first or pod.name in self.leads)]
        found = self._sorted(well, str(self.generation))
        failed, through = found["Failed"], tuple(pod for pod, _ in found["Done"])
        return Step(
            actions=(
                *self.departures.away(ill + tuple(pod for pod, _ in failed)),
                *self.ask(() if self.waits else tuple(pod for pod, _ in found["NotAsked"]), ""),
                *self._settle(through, str(self.generation)),
            ),
            blocked=bool(outdated),
            done=bool(through) and len(through) == len(outdated),
            failed=tuple((pod, each.why) for pod, each in failed),
            again=_least(each.left for _, each in found["InProgress"]),
        )

    def single(self) -> Step:
        """The next step of restarts of single pods."""
        if self.settings.in_place not in ASKING:
            return Step()
        leaving = frozenset(self.job.status.replacing)
        current = (pod for pod in self.pods if pod.restart == self.generation and pod.uid not in leaving)
        found = self._sorted((pod for pod in current if not pod.finished and not pod.deleting), "")
        return Step(
            actions=self._settle(tuple(pod for pod, _ in found["Done"])),
            failed=tuple((pod, each.why) for pod, each in found["Failed"]),
            again=_least(each.left for _, each in found["InProgress"]),
        )

    def _sorted(self, pods: Iterable[PodView], purpose: str) -> dict[State, list[tuple[PodView, Progress]]]:
        """Pods by how far the restart of their containers is."""
        found: dict[State, list[tuple[PodView, Progress]]] = {
            "NotAsked": [],
            "InProgress": [],
            "Done": [],
            "Failed": [],
        }
        for pod in pods:
            progress = self._progress(pod, purpose)
            found[progress.state].append((pod, progress))
        return found

    def tidy(self) -> tuple[Action, ...]:
        """Requests for pods that are no more are taken away."""
        there = {pod.uid for pod in self.pods}
        gone = (each for each in self.requests if each.pod_uid not in there)
        return tuple(Remove(RECREATE_REQUESTS, each.name, each.uid) for each in gone)

    def able(self, pod: PodView) -> bool:
        """Whether a pod's containers can be restarted in place. What a request ends, the pod's node has to start again:
        of a pod that it does not restart, nothing would be left."""
        there = pod.started and pod.node not in self.departures.dead
        return there and (
            self.settings.in_place == "local" or (self.settings.in_place == "kruise" and self._heals(pod))
        )

    def _heals(self, pod: PodView) -> bool:
        """Whether its node starts the containers of a pod again when they are ended."""
        policies = {name.lower(): task.restart_policy for name, task in self.job.spec.torch_task_specs.items()}
        return pod.self_healing or policies[pod.task] == "Always"

    def ask(self, pods: tuple[PodView, ...], request: str) -> tuple[Action, ...]:
        """Have the containers of pods restarted: for the job's generation, or for a request of its owner's."""
        if not pods:
            return ()
        if self.settings.in_place == "kruise":
            return tuple(Make(RECREATE_REQUESTS, self._request(pod, request)) for pod in pods)
        asked = {labels.RESTART_CONTAINERS: self._purpose(request), labels.RESTART_ASKED: timestamps.text(self._now)}
        return (MarkPods(pods, {"annotations": asked}),)

    @property
    def _now(self) -> float:
        return self.departures.now

    def _in_place(self, pod: PodView) -> bool:
        return self.able(pod) and pod.restart >= self.job.status.recreate_generation

    def _purpose(self, request: str) -> str:
        """A number, which is no other restart's: nodes compare it, people see that it is the generation."""
        if not request:
            return str(self.generation)
        return str(UNPLANNED + int(hashlib.sha256(request.encode()).hexdigest()[:12], 16))

    def _progress(self, pod: PodView, purpose: str) -> Progress:
        """Of a restart for a purpose; of any that is not over, if it is empty."""
        match self.settings.in_place:
            case "local":
                return self._by_annotation(pod, purpose)
            case "kruise":
                return self._by_request(pod)
        return Progress("NotAsked")

    def _by_annotation(self, pod: PodView, purpose: str) -> Progress:
        if not pod.asked or pod.asked_at is None or (purpose and pod.asked != purpose):
            return Progress("NotAsked")
        if pod.restarted == pod.asked:
            return Progress("Done" if purpose else "NotAsked")
        what_for, _, why = pod.not_restarted.partition(": ")
        return self._waited(pod.asked_at, why if what_for == pod.asked else "")

    def _by_request(self, pod: PodView) -> Progress:
        mine = [
            each
            for each in self.requests
            if each.pod_uid == pod.uid and each.generation == self.generation and each.restarts >= pod.settled
        ]
        if not mine:
            return Progress("NotAsked")
        newest = max(mine, key=lambda each: each.created or 0.0)
        if newest.verdict == "Done" and pod.restarts > newest.restarts and pod.running:
            return Progress("Done")
        why = (newest.message or "it failed") if newest.verdict == "Failed" else ""
        return self._waited(newest.created, why)

    def _waited(self, since: float | None, failed: str) -> Progress:
        left = self.settings.in_place_timeout - (self._now - since) if since is not None else 0.0
        if failed:
            return Progress("Failed", failed)
        # The time may be a user's word: one that is far ahead would never be over.
        if left <= 0 or left > self.settings.in_place_timeout + CLOCK_SKEW:
            return Progress("Failed", f"not done within {self.settings.in_place_timeout:g} s")
        return Progress("InProgress", left=left)

    def _settle(self, pods: tuple[PodView, ...], purpose: str = "") -> tuple[Action, ...]:
        """Mark pods as brought to the generation; what their main containers were restarted for is seen to. A request
        of its own goes after a while: what it was for, the pod says from then on."""
        by_restarts: dict[int, tuple[PodView, ...]] = {}
        for pod in pods:
            count = pod.restarts if pod.self_healing or self.settings.in_place == "kruise" else 0
            by_restarts[count] = (*by_restarts.get(count, ()), pod)
        return tuple(MarkPods(each, self._marks(count, purpose)) for count, each in sorted(by_restarts.items()))

    def _marks(self, restarts: int, purpose: str) -> dict[str, Any]:
        notes = {labels.RESTARTS_SETTLED: str(restarts)} if restarts else {}
        if purpose and self.settings.in_place == "kruise":
            notes[labels.RESTART_CONTAINERS] = purpose
        found: dict[str, Any] = {"labels": {labels.RESTART: str(self.generation)}}
        return found | ({"annotations": notes} if notes else {})

    def _request(self, pod: PodView, request: str) -> Manifest:
        """A ContainerRecreateRequest: all containers of exactly this pod, once."""
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
                "annotations": {labels.POD_UID: pod.uid, labels.RESTARTS_SETTLED: str(pod.restarts)},
                "ownerReferences": [
                    {"apiVersion": PODS.api_version, "kind": PODS.kind, "name": pod.name, "uid": pod.uid}
                ],
            },
            "spec": {
                "podName": pod.name,
                "containers": [{"name": each} for each in _containers(self.job, pod)],
                "strategy": {"failurePolicy": "Fail", "orderedRecreate": True},
                "activeDeadlineSeconds": max(SHORTEST, math.ceil(self.settings.in_place_timeout)),
                "ttlSecondsAfterFinished": KEPT,
            },
        }


def seen_to(job: TorchJob, pods: Iterable[PodView]) -> tuple[Action, ...]:
    """Mark the pods that their nodes have restarted by themselves, and of which that is counted."""
    counted = {uid: int(number) for uid, _, number in (each.partition("/") for each in job.status.replacing) if number}
    found = (pod for pod in pods if pod.settled < counted.get(pod.uid, 0))
    return tuple(MarkPods((pod,), {"annotations": {labels.RESTARTS_SETTLED: str(counted[pod.uid])}}) for pod in found)


def request_name(pod: str, purpose: str) -> str:
    """The name of a request: its own for each pod and purpose, never another one's."""
    name = f"{pod}-{purpose}"
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:10]
    return f"{pod[: LONGEST_NAME - 11]}-{digest}"


def _containers(job: TorchJob, pod: PodView) -> list[str]:
    """The main one first: the others may wait for it."""
    task = next(each for name, each in job.spec.torch_task_specs.items() if name.lower() == pod.task)
    spec = task.template["spec"]
    main = containers.main(spec)["name"]
    return sorted((each["name"] for each in spec["containers"]), key=lambda name: name != main)


def _least(seconds: Iterable[float | None]) -> float | None:
    return min((each for each in seconds if each is not None), default=None)
