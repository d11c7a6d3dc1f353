"""Restarts of containers in place: the pod keeps its name, address, resources and gang.

One rule: pure, one step at a time, from the state of pods and requests to the next actions. A restart that is late or
fails is done by replacing the pod; only the node's report makes it a success. `in_place.drivers` chooses who restarts
which pod.

A restart of the whole job replaces pods that are not healthy, and pods whose node would not restart the containers that
end in these pods. All other pods are restarted in place by one step. A pod that failed and that its node starts again
by itself is left to the node. A completed pod is marked with the job's generation. No new pod is created as long as a
run of an earlier generation may continue.

A container may start again before rank 0 has ended, meet the rank 0 from before, and fail with it. So no pod counts as
restarted before the rank 0 that it connects to: the end of such a pod is no failure, and it is replaced. A program that
starts before the new rank 0 tries to connect until the new rank 0 listens. Where a rank 0 still runs and is replaced,
which takes its grace, the other pods are restarted after its end.

A main container that ends with 0 while a restart is asked for has not succeeded (`in_place.interruptions`). Where the
node of a pod does not start its main container again, the pod is replaced at once.

The rendezvous store of an elastic job keeps running, unless its pods are to be replaced: the others meet there under a
new name, which is an annotation of their pods. If the store is lost, these pods are restarted at once all the same,
because they end by themselves soon after the store, and wait for the new store.

In the mode InPlaceRestart each restart brings the pods of an elastic job into a new world. Every pod gets its new place
first, as annotations, and then its containers are restarted: if one pod restarted first, the others would lose
their peer and end by themselves. Pods at their closed start gates have run nothing yet. Such pods are not restarted;
their gates open once the run of the world before has ended.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from crds import labels
from crds.torchjob.memory_growth import MEMORY
from crds.torchjob.tasks import RENDEZVOUS
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan.in_place import interruptions
from reconcilers.plan.in_place.driver import RestartProgress, State, purpose_of
from reconcilers.plan.in_place.drivers import Drivers
from reconcilers.plan.in_place.waves import Wave, next_wave
from reconcilers.plan.pod_deletion import PodDeletion
from reconcilers.pods import start_gate
from reconcilers.values import Action, PatchPodMetadata, earliest
from reconcilers.views import pod_place
from reconcilers.views.pod_view import PodView

ByState = dict[State, list[tuple[PodView, RestartProgress]]]
Reasons = tuple[tuple[PodView, str], ...]


@dataclass(frozen=True, slots=True)
class RestartStep:
    """The next step of a restart."""

    actions: tuple[Action, ...] = ()
    blocked: bool = False
    """Whether runs of an earlier generation may go on: new pods must not meet them."""
    held: bool = False
    """Whether they may go on although new pods are created, which wait at their gates (`waves`)."""
    done: bool = False
    """Whether the last pod is completed, and at least one was restarted in place."""
    failed: Reasons = ()
    """The pods that were not restarted in place, with the reason: they have to be replaced."""
    requeue_after: float | None = None
    """Seconds after which the step may change although no event arrives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """One job's pods, and the drivers that restart their containers."""

    job: TorchJob
    pods: tuple[PodView, ...]
    leads: frozenset[str]
    """The names of the pods that other pods connect to."""
    deletion: PodDeletion
    drivers: Drivers
    leaving: frozenset[str] = frozenset()
    """The uids of the pods that leave their nodes, so that they are replaced."""
    pause: float = 0.0
    """The seconds for which the job backs off: until shortly before their end, healthy pods are not restarted."""
    memory: Mapping[str, int] = field(default_factory=dict)
    """The memory that a pod of a task must request to be restarted in place, by task in lower case."""
    places: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """In the mode InPlaceRestart, the annotations of the pods that have a rank in the world to which they are brought,
    by the pod's name; else empty."""

    @property
    def generation(self) -> int:
        """The generation to which all pods are brought."""
        return self.job.status.restart_generation

    def pods_in_restart(self) -> frozenset[str]:
        """Return the uids of the pods whose containers are being restarted on request."""
        return frozenset(pod.uid for pod in self.pods if self.drivers.progress(pod, "").state != "NotAsked")

    def job_step(self) -> RestartStep:
        """Return the next step of a restart of the whole job; empty if none is under way."""
        outdated = tuple(pod for pod in self.pods if pod.restart != self.generation)
        if not outdated:
            return RestartStep()
        kept, others = _split(outdated, self._stays)
        entering, rest = _split(others, self._enters)
        restarted, replaced = _split(rest, self._may_restart)
        if len(replaced) == len(outdated) and (wave := next_wave(self.job, self.pods, replaced, self.deletion)).held:
            return self._replace(wave)
        by_state = _group((pod, self._progress(pod)) for pod in restarted)
        done, failed = tuple(pod for pod, _ in by_state["Done"]), _reasons(by_state)
        brought = frozenset(pod.uid for pod in done)
        going_on = {pod.uid for group in by_state.values() for pod, progress in group if not progress.has_ended}
        is_led = not any(pod.name in self.leads and pod.uid not in brought for pod in outdated)
        entered = () if kept or replaced or going_on else entering
        marked = (*kept, *(pod for pod in done if is_led or pod.name in self.leads))
        waiting, asked = _split(
            (pod for pod, _ in by_state["NotAsked"]), lambda pod: self.pause > self.drivers.ahead(pod)
        )
        is_held = not self.places and any(pod.name in self.leads and not pod.finished for pod in replaced)
        return RestartStep(
            actions=(
                *self._move((*restarted, *entering)),
                *self._ask(tuple(pod for pod in asked if not is_held or pod.name in self.leads)),
                *self.deletion.delete((*replaced, *(pod for pod, _ in failed))),
                *self._mark_done(marked, str(self.generation)),
                *self._enter(entered),
            ),
            blocked=bool(kept or replaced or going_on or entering),
            done=bool(marked) and len(marked) + len(entered) == len(outdated),
            failed=(*_ended(replaced), *self._obstacles(replaced), *failed),
            requeue_after=earliest((_earliest(by_state), *(self.pause - self.drivers.ahead(pod) for pod in waiting))),
        )

    def _replace(self, wave: Wave) -> RestartStep:
        """Return the step that replaces some pods of a gang, and lets others hold its room."""
        return RestartStep(
            actions=self.deletion.delete(wave.pods),
            held=True,
            failed=(*_ended(wave.pods), *self._obstacles(wave.pods)),
            requeue_after=wave.remaining,
        )

    def pod_step(self) -> RestartStep:
        """Return the next step of restarts of single pods."""
        to_replace = frozenset(self.job.status.replacing)
        current = [pod for pod in self.pods if pod.restart == self.generation and pod.uid not in to_replace]
        waiting = (pod for pod in current if not pod.finished or interruptions.may_go_on(pod))
        by_state = _group((pod, self.drivers.progress(pod, "")) for pod in waiting if not pod.deleting)
        return RestartStep(
            actions=self._mark_done(tuple(pod for pod, _ in by_state["Done"])),
            failed=(*_ended(current), *_reasons(by_state)),
            requeue_after=_earliest(by_state),
        )

    def can_restart(self, pod: PodView, *, explicit: bool = False) -> bool:
        """Return whether a pod's containers can be restarted in place, and are to be restarted; `explicit` says that
        the owner wants a restart in place.
        """
        return self._is_up(pod) and self.drivers.can_restart(pod, explicit=explicit)

    def request_restart(self, pods: tuple[PodView, ...], request: str) -> tuple[Action, ...]:
        """Request a restart of the containers of pods for the owner's request of this id."""
        return self._ask(pods, request)

    def _ask(self, pods: tuple[PodView, ...], request: str = "") -> tuple[Action, ...]:
        """Request a restart of the containers of pods: for the job's generation, or for a request of the owner."""
        purpose = purpose_of(self.generation, request)
        drivers = (self.drivers.agent, self.drivers.local, self.drivers.kruise)
        shares = ((driver, tuple(pod for pod in pods if self.drivers.of(pod) is driver)) for driver in drivers)
        return tuple(action for driver, share in shares if share for action in driver.ask(share, purpose))

    def _is_up(self, pod: PodView, *, under_way: bool = False) -> bool:
        """Return whether a pod is to stay where it is, and runs or is about to because its restart is under way."""
        is_going = pod.uid in self.leaving or pod.uid in self.job.status.replacing
        runs = pod.started or (under_way and not pod.deleting and interruptions.may_go_on(pod))
        return runs and pod.node not in self.deletion.dead and not is_going

    def _is_fit(self, pod: PodView) -> bool:
        """Return whether the state of a pod itself does not require a replacement."""
        has_enough = dict(pod.requests).get(MEMORY, 0) >= self.memory.get(pod.task, 0)
        return has_enough and pod.restart >= self.job.status.recreate_generation

    def _may_restart(self, pod: PodView) -> bool:
        """Return whether a pod is restarted in place with the job, and then reads its new place: it can be, or that is
        under way."""
        if pod.name in self.places and not pod.place:
            return False
        under_way = self._progress(pod).state != "NotAsked"
        return (
            self._is_up(pod, under_way=under_way) and self._is_fit(pod) and (under_way or self.drivers.can_restart(pod))
        )

    def _stays(self, pod: PodView) -> bool:
        """Return whether a pod is the rendezvous store and keeps running."""
        is_alive = pod.running and pod.node not in self.deletion.dead and pod.uid not in self.leaving
        is_store = self.job.spec.rendezvous and pod.task == RENDEZVOUS.lower()
        return is_store and is_alive and pod.restart >= self.job.status.recreate_generation

    def _enters(self, pod: PodView) -> bool:
        """Return whether a pod enters a new world without a restart: it is at a start gate that is still closed, or on
        its way there."""
        is_gone = pod.deleting or pod.finished or pod.node in self.deletion.dead or pod.uid in self.leaving
        return bool(self.places) and pod.gated and not is_gone

    def _enter(self, pods: tuple[PodView, ...]) -> tuple[Action, ...]:
        """Let pods that wait at their start gates enter the world. A gate opens with the same write, which its node
        sees a second earlier, unless the rank follows from the node of the pod."""
        placed_by_nodes = self.job.admission is not None and self.job.admission.topology
        if not pods or placed_by_nodes:
            return self._mark_done(pods)
        opened = {"annotations": {labels.START: start_gate.OPEN}}
        return (PatchPodMetadata(pods, {"labels": {labels.RESTART: str(self.generation)}, **opened}),)

    def _move(self, pods: Iterable[PodView]) -> tuple[Action, ...]:
        """Write the places of pods that have another place now; pods whose ranks stay the same are written together."""
        by_change: dict[tuple[tuple[str, str], ...], tuple[PodView, ...]] = {}
        for pod in pods if self.places else ():
            change = tuple(pod_place.changes(pod.place, self.places.get(pod.name, {})).items())
            by_change[change] = (*by_change.get(change, ()), pod)
        return tuple(PatchPodMetadata(group, {"annotations": dict(new)}) for new, group in by_change.items() if new)

    def _progress(self, pod: PodView) -> RestartProgress:
        """Return the progress of a pod's restart with the job. Where pods read from annotations with which pods they
        meet, a restart by the node itself may have been too early to read the new values."""
        reads_annotations = self.places or self.job.spec.rendezvous
        find = self.drivers.progress if reads_annotations else self.drivers.progress_with_job
        return find(pod, str(self.generation))

    def _obstacles(self, replaced: Iterable[PodView]) -> Reasons:
        """Return the pods that are replaced although their containers could be restarted, with the reason."""
        healthy = (pod for pod in replaced if self._is_up(pod) and self._is_fit(pod))
        return tuple((pod, why) for pod in healthy if (why := self.drivers.obstacle(pod)))

    def _mark_done(self, pods: Iterable[PodView], purpose: str = "") -> tuple[Action, ...]:
        """Mark pods as brought to the generation, and their restarts as counted."""
        groups: dict[tuple[tuple[str, str | None], ...], tuple[PodView, ...]] = {}
        for pod in pods:
            counted = {labels.RESTARTS_HANDLED: str(pod.restarts)} if pod.self_healing and pod.restarts else {}
            notes = tuple({**counted, **self.drivers.of(pod).done_notes(pod, purpose)}.items())
            groups[notes] = (*groups.get(notes, ()), pod)
        brought: dict[str, Any] = {"labels": {labels.RESTART: str(self.generation)}}
        return tuple(
            PatchPodMetadata(group, brought | ({"annotations": dict(notes)} if notes else {}))
            for notes, group in groups.items()
        )


def _split(
    pods: Iterable[PodView], is_first: Callable[[PodView], bool]
) -> tuple[tuple[PodView, ...], tuple[PodView, ...]]:
    """Return the pods for which a condition holds, and the other pods. Jobs have thousands of pods: each is looked at
    once."""
    first: list[PodView] = []
    others: list[PodView] = []
    for pod in pods:
        (first if is_first(pod) else others).append(pod)
    return tuple(first), tuple(others)


def _group(pods: Iterable[tuple[PodView, RestartProgress]]) -> ByState:
    by_state: ByState = {"NotAsked": [], "InProgress": [], "Done": [], "Failed": []}
    for pod, progress in pods:
        by_state[progress.state].append((pod, progress))
    return by_state


def _reasons(by_state: ByState) -> Reasons:
    return tuple((pod, progress.why) for pod, progress in by_state["Failed"])


def _earliest(by_state: ByState) -> float | None:
    return earliest(progress.remaining for _, progress in by_state["InProgress"])


def _ended(pods: Iterable[PodView]) -> Reasons:
    """Return the pods whose main container ended because its restart is asked for, and is not started again, with the
    reason."""
    return tuple((pod, interruptions.ENDED) for pod in pods if interruptions.is_final(pod) and not pod.deleting)


def mark_counted(job: TorchJob, pods: Iterable[PodView]) -> tuple[Action, ...]:
    """Record on pods that their nodes restarted that these restarts are counted."""
    counted = {uid: int(number) for uid, _, number in (mark.partition("/") for mark in job.status.replacing) if number}
    pending = (pod for pod in pods if pod.counted_restarts < counted.get(pod.uid, 0))
    return tuple(
        PatchPodMetadata((pod,), {"annotations": {labels.RESTARTS_HANDLED: str(counted[pod.uid])}}) for pod in pending
    )
