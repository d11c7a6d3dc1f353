"""The driver of Kubernetes 1.36: each pod has a restart agent, which watches one annotation of the pod.

One rule: pure. The agent exits when the annotation changes, and its node then restarts all containers of the pod. A
restart is done once the main container runs with more restarts than when it was requested.

The number of restarts rises between the end of the containers and their start; until then the pod is Pending again. A
node gives the containers two seconds there, whatever the pod says. A main container that ends by itself ends its pod,
as in any pod that is not restarted; such a pod is replaced. An agent that starts takes the annotation as it is, so a
second restart is not requested before the first one is done.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from crds.torchjob.torchjob import TorchJob
from reconcilers.plan.in_place import interruptions
from reconcilers.plan.in_place.driver import NOT_ASKED, RestartProgress, TimeLimit, group_by, rendezvous
from reconcilers.values import Action, PatchPodMetadata
from reconcilers.views.pod_view import PodView

AHEAD = 3.0
"""How many seconds before the end of a job's back-off its healthy pods are asked: from then on it takes about as long
until their main containers start, up to two seconds of which are their grace."""


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
