"""Which driver restarts the containers of a pod: the pod and the settings decide it, pod by pod.

One rule: pure. A restart that is under way is followed by the driver of the pod, whatever the settings say since.

    a pod                                                 its driver
    on the embedded node (`local`)                        its node (`local`)
    that has a restart agent                              the agent (`agent`), also where an admin has chosen Kruise
    whose node starts again what ends in it, where        OpenKruise (`kruise`), unless its container would wait for
    requests to Kruise are served                         the back-off of its node
    any other one; all with the setting `recreate`        none: it is replaced

The embedded node takes an annotation as the request, and a condition of the pod says that it is done: only the node's
report makes a restart a success.

A restart agent (Kubernetes 1.36) watches one annotation of its pod, and exits when the annotation changes; its node
then restarts all containers of the pod. The restart is done once the main container runs with more restarts than when
it was requested. The number of restarts rises between the end of the containers and their start; until then the pod is
Pending again. A node gives the containers two seconds there, whatever the pod says. A main container that ends by
itself ends its pod, as in any pod that is not restarted; such a pod is replaced. An agent that starts takes the
annotation as it is, so a second restart is not requested before the first restart is done.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from crds.api_resources import RECREATE_REQUESTS
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan.in_place import interruptions
from reconcilers.plan.in_place.driver import NOT_ASKED, Driver, RestartProgress, TimeLimit, group_by, rendezvous
from reconcilers.plan.in_place.kruise import Kruise
from reconcilers.settings import ReconcileSettings
from reconcilers.values import Action, PatchPodMetadata
from reconcilers.views.pod_view import PodView
from reconcilers.views.recreate_request import RecreateView

AHEAD = 3.0
"""How many seconds before the end of a job's back-off its healthy pods are asked: from then on it takes about as long
until their main containers start, up to two seconds of which are their grace."""
NO_IMAGE = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName")
"""The problems of a container that is not started again for want of its image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """The requests to the embedded node."""

    job: TorchJob
    limit: TimeLimit

    def ask(self, pods: tuple[PodView, ...], purpose: str) -> tuple[Action, ...]:
        """Return the actions that request a restart of the containers of pods."""
        return (PatchPodMetadata(pods, {"annotations": self.limit.request(purpose) | rendezvous(self.job)}),)

    def progress(self, pod: PodView, purpose: str) -> RestartProgress:
        """Return the progress of a pod's restart for a purpose; of any unfinished restart if the purpose is empty."""
        if not pod.requested_restart or pod.restart_requested_at is None:
            return NOT_ASKED
        if purpose and pod.requested_restart != purpose:
            return NOT_ASKED
        if pod.completed_restart == pod.requested_restart:
            return RestartProgress("Done") if purpose else NOT_ASKED
        what_for, _, why = pod.failed_restart.partition(": ")
        return self.limit.check(pod.restart_requested_at, why if what_for == pod.requested_restart else "")

    def done_notes(self, _pod: PodView, _purpose: str) -> Mapping[str, str | None]:
        """Return no annotation: the request and the condition stay."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """The requests to the restart agents of pods."""

    job: TorchJob
    limit: TimeLimit

    def ask(self, pods: tuple[PodView, ...], purpose: str) -> tuple[Action, ...]:
        """Return the actions that request a restart of the containers of pods."""
        groups = group_by(pods, lambda pod: interruptions.mark(purpose, pod))
        return tuple(
            PatchPodMetadata(group, {"annotations": self.limit.request(text) | rendezvous(self.job)})
            for text, group in groups.items()
        )

    def progress(self, pod: PodView, purpose: str) -> RestartProgress:
        """Return the progress of a pod's restart for a purpose; of any unfinished restart if the purpose is empty."""
        if interruptions.is_marked(pod):
            return self.limit.check(pod.restart_requested_at)
        is_counted = interruptions.SEPARATOR in pod.requested_restart
        is_other = bool(purpose) and interruptions.purpose(pod) != purpose
        if is_other or not is_counted or pod.restart_requested_at is None or pod.finished or pod.deleting:
            return NOT_ASKED
        if pod.running:
            return RestartProgress("Done") if purpose else NOT_ASKED
        return replace(self.limit.check(pod.restart_requested_at), is_between=True)

    def done_notes(self, _pod: PodView, _purpose: str) -> Mapping[str, str | None]:
        """Return no annotation: the request stays, and the number of restarts shows that it is done."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drivers:
    """The drivers of one job's pods."""

    setting: Literal["auto", "recreate", "local", "kruise", "kubernetes"]
    local: Local
    kruise: Kruise
    agent: Agent
    asks_kruise: bool
    """Whether requests to Kruise can be created."""

    def of(self, pod: PodView) -> Driver:
        """Return the driver by which a restart of a pod is under way, if a restart is under way."""
        if self.setting == "local":
            return self.local
        return self.agent if pod.has_restart_agent else self.kruise

    def ahead(self, pod: PodView) -> float:
        """Return how many seconds before the end of a back-off a pod is asked, so that it starts when that is over."""
        return AHEAD if self.of(pod) is self.agent else 0.0

    def can_restart(self, pod: PodView, *, explicit: bool = False) -> bool:
        """Return whether a driver restarts the containers of a pod that runs; `explicit`: its owner wants it so, also
        where a new pod would be faster."""
        if self.setting in ("recreate", "local"):
            return self.setting == "local"
        if pod.problem or pod.agent_failure:
            return False
        return pod.has_restart_agent or (self._by_kruise(pod) and (explicit or not self.kruise.obstacle(pod)))

    def obstacle(self, pod: PodView) -> str:
        """Return why a pod is replaced although a driver could restart its containers; empty if none could."""
        return self.kruise.obstacle(pod) if self._by_kruise(pod) else ""

    def progress(self, pod: PodView, purpose: str) -> RestartProgress:
        """Return the progress of a pod's restart for a purpose; of any unfinished restart if the purpose is empty."""
        found = self.of(pod).progress(pod, purpose)
        if found.state == "InProgress" and pod.problem.startswith(NO_IMAGE):
            return RestartProgress("Failed", pod.problem)
        return found

    def progress_with_job(self, pod: PodView, purpose: str) -> RestartProgress:
        """Return the progress of a pod in a restart of the whole job, also where its node restarts it by itself."""
        found = self.progress(pod, purpose)
        is_own = found.state == "NotAsked" and self._by_kruise(pod)
        return self.kruise.own_restart(pod) if is_own else found

    def _by_kruise(self, pod: PodView) -> bool:
        """Return whether a pod is restarted by Kruise, if at all."""
        is_chosen = self.setting in ("auto", "kruise") and self.asks_kruise and not pod.has_restart_agent
        return is_chosen and _starts_again(self.kruise.job, pod)


def find_drivers(
    job: TorchJob,
    pods: tuple[PodView, ...],
    requests: tuple[RecreateView, ...],
    settings: ReconcileSettings,
    now: float,
    *,
    refused: bool = False,
) -> Drivers:
    """Return the drivers of a job's pods; `refused` tells that a request to Kruise could not be created."""
    limit = TimeLimit(now=now, timeout=settings.in_place_timeout)
    return Drivers(
        setting=settings.in_place,
        local=Local(job=job, limit=limit),
        kruise=Kruise(job=job, pods=pods, requests=requests, limit=limit),
        agent=Agent(job=job, limit=limit),
        asks_kruise=settings.version(RECREATE_REQUESTS) is not None and not refused,
    )


def can_restart_any(job: TorchJob, pods: Iterable[PodView], settings: ReconcileSettings) -> bool:
    """Return whether any pod of a job may be restarted in place."""
    if settings.in_place in ("recreate", "local"):
        return settings.in_place == "local"
    asks_kruise = settings.in_place in ("auto", "kruise") and settings.version(RECREATE_REQUESTS) is not None
    return any(pod.has_restart_agent or (asks_kruise and _starts_again(job, pod)) for pod in pods)


def _starts_again(job: TorchJob, pod: PodView) -> bool:
    """Return whether the pod's node starts its containers again when they end. If the node does not restart them, no
    container of the pod would be left after a request to end them.
    """
    policies = {name.lower(): task.restart_policy for name, task in job.spec.torch_task_specs.items()}
    return pod.self_healing or policies.get(pod.task) == "Always"
