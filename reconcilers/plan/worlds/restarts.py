"""Restarts of all pods of an elastic job in the mode InPlaceRestart: each brings the pods into one new world.

One rule: pure. Every pod gets its new place first, as annotations; then its containers are restarted, as in any restart
of a whole job (`reconcilers.plan.in_place.restarts`). If one of them went first, the others would lose their peer and
end by themselves. Pods at their closed start gates have run nothing yet. They are
not restarted; their gates open once the run of the world before has ended.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crds import labels
from reconcilers.plan.in_place.restarts import Restarts
from reconcilers.pods import start_gate
from reconcilers.values import Action, PatchPodMetadata
from reconcilers.views import pod_place
from reconcilers.views.pod_view import PodView


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldRestarts(Restarts):
    """One job's pods, and their places in the world to which they are brought."""

    places: Mapping[str, Mapping[str, str]]
    """The annotations of the pods that have a rank, by the pod's name."""

    def _waits_to_enter(self, pod: PodView) -> bool:
        """Return whether a pod is at a start gate that is still closed, or on its way there."""
        is_up = not (pod.deleting or pod.finished or pod.node in self.deletion.dead or pod.uid in self.leaving)
        return pod.gated and is_up

    def _may_restart(self, pod: PodView) -> bool:
        """Return whether a pod's containers can be restarted in place, and then read their new place."""
        has_place = bool(pod.place) or pod.name not in self.places
        return has_place and Restarts._may_restart(self, pod)

    @property
    def _waits_for_leads(self) -> bool:
        return False

    @property
    def _reads_annotations(self) -> bool:
        return True

    def _enter(self, pods: tuple[PodView, ...]) -> tuple[Action, ...]:
        """Let pods that wait at their start gates enter the world. A gate opens with the same write, which its node
        sees a second earlier, unless the rank follows from the node of the pod."""
        placed_by_nodes = self.job.admission is not None and self.job.admission.topology
        if not pods or placed_by_nodes:
            return self._mark_done(pods)
        opened = {"annotations": {labels.START: start_gate.OPEN}}
        return (PatchPodMetadata(pods, {"labels": {labels.RESTART: str(self.generation)}, **opened}),)

    def _prepare(self, pods: Iterable[PodView]) -> tuple[Action, ...]:
        """Write the places of pods that have another one; pods whose ranks stay the same are written together."""
        by_change: dict[tuple[tuple[str, str], ...], tuple[PodView, ...]] = {}
        for pod in pods:
            change = tuple(pod_place.changes(pod.place, self.places.get(pod.name, {})).items())
            by_change[change] = (*by_change.get(change, ()), pod)
        return tuple(PatchPodMetadata(group, {"annotations": dict(new)}) for new, group in by_change.items() if new)
