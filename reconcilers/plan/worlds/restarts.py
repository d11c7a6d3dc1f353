"""Restarts of all pods of an elastic job in the mode InPlaceRestart: each brings the pods into one new world.

One rule: pure. Every pod gets its new place first, as annotations; then all containers are restarted, at once. If one
of them went first, the others would lose their peer and end by themselves.

A pod counts as restarted only when rank 0 is, because its containers may have met the rank 0 of the world before, and
fail with it. That is no failure of the new world, and the pod is replaced. Pods at their closed start gates have run
nothing yet. They are not restarted; their gates open once rank 0 is restarted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reconcilers.plan.restarts import Restarts, RestartStep, ended_pods
from reconcilers.values import Action, PatchPodMetadata, earliest
from reconcilers.views import pod_place
from reconcilers.views.pod_view import PodView


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldRestarts(Restarts):
    """One job's pods, the requests created for them, and their places in the world to which they are brought."""

    places: Mapping[str, Mapping[str, str]]
    """The annotations of the pods that have a rank, by the pod's name."""

    def job_step(self) -> RestartStep:
        """Return the next step of a restart of the whole job; empty if none is under way."""
        outdated = tuple(pod for pod in self.pods if pod.restart != self.generation)
        if not outdated:
            return RestartStep()
        waiting = tuple(pod for pod in outdated if self._is_at_gate(pod))
        restarted = tuple(pod for pod in outdated if pod not in waiting and self._may_restart(pod))
        replaced = tuple(pod for pod in outdated if pod not in waiting and pod not in restarted)
        by_state = self._by_state(restarted, str(self.generation))
        done, failed = tuple(pod for pod, _ in by_state["Done"]), by_state["Failed"]
        is_led = not any(pod.name in self.leads for pod in outdated if pod not in done)
        marked = tuple(pod for pod in done if is_led or pod.name in self.leads)
        entered = waiting if is_led else ()
        return RestartStep(
            actions=(
                *self._write_places((*restarted, *waiting)),
                *self.request_restart(() if self.waits else tuple(pod for pod, _ in by_state["NotAsked"]), ""),
                *self.deletion.delete((*replaced, *(pod for pod, _ in failed))),
                *self._mark_done(marked, str(self.generation)),
                *self._mark_done(entered),
            ),
            blocked=True,
            done=bool(marked) and len(marked) + len(entered) == len(outdated),
            failed=(*ended_pods(replaced), *((pod, progress.why) for pod, progress in failed)),
            requeue_after=earliest(progress.remaining for _, progress in by_state["InProgress"]),
        )

    def _is_at_gate(self, pod: PodView) -> bool:
        """Return whether a pod is at a start gate that is still closed, or on its way there."""
        is_up = not (pod.deleting or pod.finished or pod.node in self.deletion.dead or pod.uid in self.leaving)
        return pod.gated and is_up and pod.restart >= self.job.status.recreate_generation

    def _may_restart(self, pod: PodView) -> bool:
        """Return whether a pod's containers can be restarted in place, and then read their new place."""
        return self._in_place(pod) and (bool(pod.place) or pod.name not in self.places)

    def _write_places(self, pods: Iterable[PodView]) -> tuple[Action, ...]:
        """Write the places of pods that have another one; pods whose ranks stay the same are written together."""
        by_change: dict[tuple[tuple[str, str], ...], tuple[PodView, ...]] = {}
        for pod in pods:
            change = tuple(pod_place.changes(pod.place, self.places.get(pod.name, {})).items())
            by_change[change] = (*by_change.get(change, ()), pod)
        return tuple(PatchPodMetadata(group, {"annotations": dict(new)}) for new, group in by_change.items() if new)
