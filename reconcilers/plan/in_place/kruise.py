"""The driver of OpenKruise: a ContainerRecreateRequest per pod.

One rule: pure. A request is done once it completed without an error message, every container succeeded, and the main
container has been restarted. The daemon on the node carries out one request of a pod at a time and never looks at a
second request, so an open request is deleted before another one is created.

A kubelet restarts the containers that the daemon ends, with the back-off of the container: 0, 10, 20, 40 s and so on
for restarts within 10 minutes, whatever ended the container. A new pod has no back-off. A container that has ended by
itself is not asked for: the request would fail.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from crds import labels
from crds.api_resources import PODS, RECREATE_REQUESTS
from crds.torchjob.torchjob import TorchJob
from kube.api import Manifest
from reconcilers.plan.in_place import interruptions
from reconcilers.plan.in_place.driver import NOT_ASKED, UNPLANNED, RestartProgress, TimeLimit, group_by, rendezvous
from reconcilers.values import Action, CreateObject, DeleteObject, PatchPodMetadata
from reconcilers.views import containers
from reconcilers.views.pod_view import PodView
from reconcilers.views.recreate_request import RecreateView

LONGEST_NAME = 63
KEPT = 600
"""The seconds for which a request is kept after its end, so that people can read it."""
SHORTEST = 3
"""The shortest time limit of a request, in seconds."""
BACKOFF_ENDS = 600.0
"""The seconds after which a kubelet forgets the restarts of a container that has run since."""
BACKS_OFF = "its node has restarted its main container before, and would back off for longer than a new pod takes"
"""The reason of a pod that is replaced. A kubelet shows the state CrashLoopBackOff only when its back-off ends."""


@dataclass(frozen=True, kw_only=True)
class Kruise:
    """The requests to OpenKruise for one job's pods."""

    job: TorchJob
    pods: tuple[PodView, ...]
    requests: tuple[RecreateView, ...]
    limit: TimeLimit

    def ask(self, pods: tuple[PodView, ...], purpose: str) -> tuple[Action, ...]:
        """Return the actions that request a restart of the containers of pods."""
        named = (PatchPodMetadata(pods, {"annotations": note}),) if (note := rendezvous(self.job)) else ()
        # A restart of all pods is in the status; the restart of a single pod has to be recorded on the pod, whose view
        # may be newer than the view of the request.
        marked = self._mark(pods, purpose) if int(purpose) >= UNPLANNED else ()
        names = {pod.uid: request_name(pod.name, purpose) for pod in pods}
        open_ones = (each for each in self.requests if each.pod_uid in names and each.verdict == "InProgress")
        replaced = (each for each in open_ones if each.name != names[each.pod_uid])
        return (
            *named,
            *marked,
            *(DeleteObject(RECREATE_REQUESTS, each.name, each.uid) for each in replaced),
            *(CreateObject(RECREATE_REQUESTS, self._request(pod, purpose)) for pod in pods),
        )

    def progress(self, pod: PodView, purpose: str) -> RestartProgress:
        """Return the progress of a pod's restart in the job's generation; `purpose` is empty for any unfinished
        restart.
        """
        newest = self._newest(pod)
        if newest is None:
            is_single = not purpose and interruptions.is_marked(pod)
            return self.limit.check(pod.restart_requested_at) if is_single else NOT_ASKED
        if newest.verdict == "Done" and pod.restarts > newest.restarts and pod.running:
            return RestartProgress("Done")
        if purpose and pod.restarts > newest.restarts + 1 and pod.problem:
            return RestartProgress("Failed", f"its main container has ended again: {pod.problem}")
        return self.limit.check(newest.created, (newest.message or "it failed") if newest.verdict == "Failed" else "")

    def own_restart(self, pod: PodView) -> RestartProgress:
        """Return the progress of the restart that a node does by itself, because the main container has failed: the
        pod is not restarted once more."""
        is_requested = any(each.restarts >= pod.counted_restarts for each in self._of(pod))
        if is_requested or not pod.self_healing or pod.restarts <= pod.counted_restarts:
            return NOT_ASKED
        if pod.running:
            return RestartProgress("Done")
        ended = self.limit.now if pod.ended is None else pod.ended
        return self.limit.check(ended, BACKS_OFF if pod.restarts > 1 else "")

    def done_notes(self, pod: PodView, purpose: str) -> Mapping[str, str | None]:
        """Return the annotations of a pod whose restart is done: the request disappears after a while, and from then on
        the pod itself records the purpose."""
        counted = {labels.RESTARTS_HANDLED: str(pod.restarts)} if pod.restarts else {}
        is_marked = purpose and pod.restart_requested_at is not None
        unmarked: dict[str, str | None] = {labels.RESTART_REQUESTED_AT: None} if is_marked else {}
        return counted | ({labels.RESTART_CONTAINERS: purpose} if purpose else {}) | unmarked

    def obstacle(self, pod: PodView) -> str:
        """Return why a restart of this pod would take longer than a new pod does; empty if a restart would not take
        longer.
        """
        if pod.problem:
            return f"its main container does not run: {pod.problem}"
        if pod.restarts and pod.ended is not None and self.limit.now - pod.ended < BACKOFF_ENDS:
            return BACKS_OFF
        if pod.node and pod.node in self._silent_nodes:
            return f"Kruise's daemon on node {pod.node} has not answered"
        return ""

    def _newest(self, pod: PodView) -> RecreateView | None:
        """Return the newest request for a pod in the job's generation whose restart is not counted yet."""
        generation = self.job.status.restart_generation
        found = (
            each for each in self._of(pod) if each.generation == generation and each.restarts >= pod.counted_restarts
        )
        return max(found, key=lambda each: each.created or 0.0, default=None)

    def _of(self, pod: PodView) -> Sequence[RecreateView]:
        """Return the requests for a pod."""
        return self._by_pod.get(pod.uid, ())

    @cached_property
    def _by_pod(self) -> Mapping[str, Sequence[RecreateView]]:
        """The requests by the uid of their pod."""
        found: dict[str, list[RecreateView]] = {}
        for request in self.requests:
            found.setdefault(request.pod_uid, []).append(request)
        return found

    @cached_property
    def _silent_nodes(self) -> frozenset[str]:
        """The nodes whose daemon has let a request of this generation run into its time limit."""
        late = self.limit.now - self.limit.timeout
        return frozenset(
            pod.node
            for pod in self.pods
            if (newest := self._newest(pod)) is not None and newest.verdict != "Done"
            if newest.created is not None and newest.created <= late
        )

    def _mark(self, pods: tuple[PodView, ...], purpose: str) -> tuple[Action, ...]:
        """Mark pods as asked to restart, each with its number of restarts until then."""
        groups = group_by(pods, lambda pod: interruptions.mark(purpose, pod))
        return tuple(
            PatchPodMetadata(group, {"annotations": self.limit.request(text)}) for text, group in groups.items()
        )

    def _request(self, pod: PodView, purpose: str) -> Manifest:
        """Return a ContainerRecreateRequest for all containers of exactly this pod, once."""
        metadata = self.job.metadata
        # A kubelet may begin its count of restarts anew, and then shows fewer restarts than were counted.
        restarts = max(pod.restarts, pod.counted_restarts)
        request = {
            "name": request_name(pod.name, purpose),
            "namespace": metadata.namespace,
            "labels": {
                labels.JOB_NAME: metadata.name,
                labels.JOB_UID: metadata.uid,
                labels.RESTART: str(self.job.status.restart_generation),
            },
            "annotations": {labels.POD_UID: pod.uid, labels.RESTARTS_HANDLED: str(restarts)},
            "ownerReferences": [PODS.reference(pod.name, pod.uid)],
        }
        spec = {
            "podName": pod.name,
            "containers": [{"name": name} for name in _containers(self.job, pod)],
            "strategy": {"failurePolicy": "Fail", "orderedRecreate": True},
            "activeDeadlineSeconds": max(SHORTEST, math.ceil(self.limit.timeout)),
            "ttlSecondsAfterFinished": KEPT,
        }
        return RECREATE_REQUESTS.manifest(request, spec=spec)


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
    """Return the names of the containers of a pod that have not ended by themselves, the main container first, because
    the others may wait for it.
    """
    task = next(task for name, task in job.spec.torch_task_specs.items() if name.lower() == pod.task)
    spec = task.template["spec"]
    main = containers.main(spec)["name"]
    names = (each["name"] for each in spec["containers"] if each["name"] not in pod.ended_containers.split(","))
    return sorted(names, key=lambda name: name != main)
