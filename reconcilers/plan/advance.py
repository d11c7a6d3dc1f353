"""The progress of an active job: what is created next, and what the status of the job says.

One rule: pure. Groups are created before the pods they bind, and a rank 0's service before the rank 0. The status
records that a stage has begun before anything of the stage is created.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from crds import labels
from crds.torchjob.status import StageStatus, TorchJobStatus
from crds.torchjob.tasks import WORKER
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import backoff, departures, grown_memory, progress, status
from reconcilers.plan.elastic import checkpoints
from reconcilers.plan.gangs import Groups, Scheduling
from reconcilers.plan.grown_memory import UnchargedMemory
from reconcilers.plan.in_place import waves
from reconcilers.plan.lifecycle import Active
from reconcilers.plan.moment import Moment
from reconcilers.plan.start_gates import StartGates
from reconcilers.pods import disruption_budget, host_file, node_affinity, pod_manifests, start_gate, topology
from reconcilers.pods.task_members import PodMember
from reconcilers.pods.topology import NodeLabels
from reconcilers.values import (
    Action,
    Blocker,
    CreateObject,
    CreatePods,
    CreateService,
    NoMemory,
    PatchObject,
    PatchPodMetadata,
    earliest,
)
from reconcilers.views import pod_view
from reconcilers.views.pod_view import PodView


@dataclass(frozen=True, kw_only=True)
class Advance:
    """An active job and its objects."""

    run: Active
    at: Moment
    stuck: bool = False
    """Whether finalizers keep pods that should no longer exist."""
    held: bool = False
    """Whether new pods wait at their start gates, because runs from before a restart go on."""

    @cached_property
    def scheduling(self) -> Scheduling:
        """How the job's pods are bound."""
        return Scheduling(
            job=self.run.job,
            admission=self.run.admission,
            backend=self.at.settings.backend(self.run.admission.gang_scheduler),
            default_queue=self.at.observation.gang_queue,
            at_once=self.at.settings.pods_at_once,
            now=self.at.now.timestamp(),
        )

    @cached_property
    def groups(self) -> Groups:
        """The next step for the job's groups."""
        if not self.at.settings.make_pods:
            return Groups()
        return self.scheduling.groups(
            self.run.progress, self.at.observation.groups, self.run.pods, self.run.members.values()
        )

    @cached_property
    def uncharged(self) -> UnchargedMemory | None:
        """The memory that some of the next pods are to have and that the job is not charged for."""
        return grown_memory.find_uncharged(self.run.job)

    @property
    def changed_groups(self) -> tuple[Action, ...]:
        """The changes of existing groups alone, and of groups that the cache does not show yet."""
        # A group that could not be created has no size that has to be changed.
        unseen = self.at.observation.obstacle is None
        return tuple(
            action
            for action in self.groups.actions
            if isinstance(action, PatchObject) or (unseen and isinstance(action, CreateObject) and action.correction)
        )

    def status(self) -> TorchJobStatus:
        """Return the status: Running once every task of the begun stages has its minimum, and then until a restart."""
        job = self.run.job
        update = {"stages": self._stages(), "departed": departures.remaining(job, self.run.members, self.run.pods)}
        after = checkpoints.forget_leaving(self._phase(job).model_copy(update=update))
        return backoff.forget_if_stable(after, self.at.now)

    def _phase(self, job: TorchJob) -> TorchJobStatus:
        blocker = self.groups.blocker
        is_blocked = status.is_blocked(job.status) and not (self.stuck and _is_stuck_reported(self.run.job))
        if blocker is not None:
            return status.block(job, blocker, self.at.now)
        runs = progress.all_running(job, self.run.progress, progress.begun_stages(job))
        if runs and (job.status.phase != "Running" or (is_blocked and not self._lacks_pods())):
            return status.mark_running(job, self.at.now)
        full = self.at.observation.met(NoMemory)
        if self.uncharged is not None and full is not None:
            message = self.uncharged.describe_refusal(self.run.admission.queue, full.by)
            if runs:
                return status.block(job, Blocker(status.NO_MEMORY, message), self.at.now)
            # The job holds its room and does not run: the time of this state has a limit (`Deadline`).
            return status.enter(job, "Admitted", status.NO_MEMORY, message, self.at.now)
        if is_blocked and self._is_over():
            return status.unblock(job, self.at.now)
        return status.observe_generation(job)

    def _lacks_pods(self) -> bool:
        """Return whether refused pods are still missing; until they are created, the status keeps the refusal."""
        if status.waits_for_memory(self.run.job.status):
            return self.uncharged is not None
        return status.is_about_pods(self.run.job.status) and bool(self._pods())

    def _is_over(self) -> bool:
        """Return whether the job is no longer blocked: no group or pod is missing or refused any more, the stuck pods
        are deleted, or the pool has room for the memory that its pods are to have."""
        if _is_stuck_reported(self.run.job):
            return True
        if status.waits_for_memory(self.run.job.status):
            return self.uncharged is None
        if status.is_about_pods(self.run.job.status):
            return not self._pods()
        about_groups = status.is_about_groups(self.run.job.status)
        return about_groups and not any(isinstance(action, CreateObject) for action in self.groups.actions)

    def _stages(self) -> dict[str, StageStatus]:
        """Return which stages have begun, and which of the begun stages have run."""
        stages = dict(self.run.job.status.stages)
        for stage in self.run.progress.begun if self.at.settings.make_pods else ():
            entry = stages.get(str(stage.index))
            if stage.awaits and entry is None:
                stages[str(stage.index)] = StageStatus(began=self.at.now)
            elif entry and entry.running is None and progress.all_running(self.run.job, self.run.progress, (stage,)):
                stages[str(stage.index)] = StageStatus(began=entry.began, running=self.at.now)
        return stages

    def actions(self) -> tuple[Action, ...]:
        """Return the actions that create groups, open gates, and create the missing pods that may exist now."""
        if not self.at.settings.make_pods:
            return ()
        return (*self.groups.actions, *self._open_gates(), *self._pods())

    @cached_property
    def gates(self) -> StartGates:
        """The start gates of the job's pods."""
        joining = frozenset(member.name for member in self.run.members.values() if member.joins)
        run = self.run
        bound = topology.are_bound(run.job, run.admission, run.members, run.pods)
        return StartGates(
            job=run.job,
            pods=run.pods,
            progress=self.run.progress,
            now=self.at.now.timestamp(),
            joining=joining,
            held=self.held,
            unplaced=frozenset(name for name, member in self._placed.items() if member.lead not in bound),
        )

    @cached_property
    def _placed(self) -> dict[str, PodMember]:
        """The pods whose ranks follow from their nodes, by name."""
        run = self.run
        if not run.admission.topology:
            return {}
        return {name: pod for name, pod in run.members.items() if topology.is_ordered(run.job, run.admission, pod)}

    @property
    def requeue_after(self) -> float | None:
        """Seconds after which the next step may change although no event arrives."""
        try_again = None if self.uncharged is None else grown_memory.TRY_AGAIN
        return earliest((self.groups.requeue_after, self.gates.requeue_after, try_again))

    def _open_gates(self) -> tuple[Action, ...]:
        """Return the actions that open the gates of pods that may start, with the ranks that their nodes give them."""
        return _open(self.gates.to_open, self._placed, self.run, self.at.observation.node_labels)

    def _pods(self) -> tuple[Action, ...]:
        names = {pod.name for pod in self.at.observation.pods}
        if self._waits_for_removed_pods():
            return ()
        waits = partial(backoff.is_pod_waiting, self.run.job.status, settings=self.at.settings, now=self.at.now)
        absent = [member for name, member in self.run.members.items() if name not in names and not waits(name)]
        if not absent:
            return ()
        blueprint = self._blueprint()
        missing = self._with_room([member for member in absent if self._may_be_made(blueprint, member)])
        first = _first(missing, self.run.pods)
        leads = [member for member in missing if member.name == member.lead and blueprint.needs_service(member.lead)]
        beside: tuple[Action, ...] = tuple(CreateService(pod_manifests.service(blueprint, lead)) for lead in leads)
        if missing and not self.run.pods:
            beside = (*disruption_budget.creation(self.run.job, self.run.admission.attempt), *beside)
        batches = (tuple(member for member in missing if (member.name in first) is before) for before in (True, False))
        return (*beside, *(CreatePods(pod_manifests.PodManifests(blueprint, batch)) for batch in batches if batch))

    def _waits_for_removed_pods(self) -> bool:
        """Return whether removed workers have to be gone before any pod is created.

        No pod may meet pods from before the last restart; a rendezvous has a name for each generation, so that pods
        meet only pods of their generation. And where a growth was revoked, room is reserved only for the workers that
        stay.
        """
        job, remaining = self.run.job, [pod for pod in self.run.removed if pod_view.occupies(pod)]
        return (self._revoked_to is not None and bool(remaining)) or (
            not job.spec.rendezvous and any(progress.is_outdated(job, pod) for pod in remaining)
        )

    @property
    def _revoked_to(self) -> int | None:
        """The number of workers for which room is reserved, if a growth was revoked, else None."""
        held, workers = self.at.observation.reservation, self.run.admission.workers or 0
        return held.size if held is not None and 0 < held.size < workers else None

    def _with_room(self, missing: list[PodMember]) -> list[PodMember]:
        """Return the missing pods for which room is reserved. The job may be saving before workers are removed."""
        if self._revoked_to is None:
            return missing
        pods = (*self.run.pods, *self.run.removed)
        room = self._revoked_to - sum(pod.task == WORKER.lower() and pod_view.occupies(pod) for pod in pods)
        workers = [member for member in missing if member.task_type == WORKER][: max(0, room)]
        return [member for member in missing if member.task_type != WORKER or member in workers]

    def _blueprint(self) -> pod_manifests.Blueprint:
        scheduling, without = self.scheduling, self.scheduling.incomplete_tasks(self.run.progress, self.run.pods)
        begun = self.run.progress.begun if scheduling.together else ()
        return pod_manifests.Blueprint(
            job=self.run.job,
            admission=self.run.admission,
            members=self.run.members,
            settings=self.at.settings,
            fits_elsewhere=self.at.observation.other_nodes,
            backend=scheduling.backend,
            gangs={stage.index: scheduling.gang(stage, without) for stage in begun},
            gang_queue=scheduling.queue,
            alone=self.groups.alone,
            open_gates=self.gates.open_tasks,
            held=self.held,
            places=_places(self.run, self.at),
        )

    def _may_be_made(self, blueprint: pod_manifests.Blueprint, member: PodMember) -> bool:
        """Return whether a pod may be created: with its whole stage where a gang scheduler binds it, else once its own
        upstream tasks have progressed far enough."""
        if member.task_type in self.run.progress.passed | self.run.progress.closed:
            return False
        if self.uncharged is not None and member.task_type in self.uncharged.amounts:
            return False
        if self.held and member.task_type.lower() not in waves.gated_tasks(self.run.job):
            return False
        if blueprint.is_gang_bound(member):
            return member.stage in self.groups.ready and member.name not in self.groups.later
        if blueprint.is_ordered(member):  # its world starts once all of it is bound
            return any(member.stage == stage.index for stage in self.run.progress.begun)
        return member.task_type in self.run.progress.started


def _places(run: Active, at: Moment) -> Mapping[str, str]:
    """Return the nodes on which the pods were placed when the job was admitted or grew, by the names of the pods."""
    held = at.observation.reservation
    if held is None or not at.settings.placement_hints:
        return {}
    return node_affinity.places(run.job, run.members.values(), held.nodes)


def _first(missing: Sequence[PodMember], pods: Sequence[PodView]) -> frozenset[str]:
    """Return the first pod of each task without any pod. The pod that the API server makes of this first one is checked
    before the task's other pods are created. The result is empty if no other pods would follow.
    """
    tasks_with_pods = {pod.task for pod in pods}
    first = {
        member.task_type: member.name for member in reversed(missing) if member.task_type.lower() not in tasks_with_pods
    }
    return frozenset(first.values() if len(first) < len(missing) else ())


def _is_stuck_reported(job: TorchJob) -> bool:
    return status.admission_reason(job.status) == status.PODS_STUCK


def _open(
    pods: Sequence[PodView], placed: Mapping[str, PodMember], run: Active, nodes: NodeLabels
) -> tuple[Action, ...]:
    """Open the gates of pods. Those that are `placed` get their ranks, and the hosts in the order of ranks, by the same
    write."""
    opening = {labels.START: start_gate.OPEN}
    others = tuple(pod for pod in pods if pod.name not in placed)
    ranked = {pod: placed[pod.name] for pod in pods if pod.name in placed}
    hosts = host_file.texts(run.job, run.admission, run.members.values()) if ranked else {}
    notes = {
        pod: topology.annotations(member, run.admission, pod.node, nodes)
        | host_file.with_rank(run.job, member, hosts[member.stage])
        for pod, member in ranked.items()
    }
    together = (PatchPodMetadata(others, {"annotations": opening}),) if others else ()
    return (*together, *(PatchPodMetadata((pod,), {"annotations": {**opening, **notes[pod]}}) for pod in notes))
