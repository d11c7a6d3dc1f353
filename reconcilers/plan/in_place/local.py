"""The driver of the embedded node: an annotation requests a restart, and a condition says that it is done.

One rule: pure. Only the node's report makes a restart a success.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from crds.torchjob.torchjob import TorchJob
from reconcilers.plan.in_place.driver import NOT_ASKED, RestartProgress, TimeLimit, rendezvous
from reconcilers.values import Action, PatchPodMetadata
from reconcilers.views.pod_view import PodView


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
