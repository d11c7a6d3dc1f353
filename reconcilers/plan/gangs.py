"""The groups of pods that a gang scheduler binds all or none: one for each stage that has begun.

One rule: pure. A group is created before its pods and deleted when its stage, or the job's admission, is over. A
restart keeps the group; another admission has its own group. Auxiliary tasks are in no group: the same scheduler binds
each of their pods alone.

A stage's pods are created when its group is not Pending, or when some of them exist already. With `pods_at_once` the
pods do not wait for the group. `reconcilers.plan.advance` opens their gates when they may start.

Finished pods are in the way. No scheduler counts finished pods, so a pod that replaces another one after a member has
ended would wait for ever for a gang that is whole. The minimum is lowered then to the pods that still can be bound.
Where a gang's size is fixed, a pod that is made once the gang was bound is in no gang.

A group may become Pending again while some of its pods have their nodes. The group then requests no resources until the
scheduler lets the group in. Otherwise its scheduler would look for room for the whole group beside the resources that
the group already has, and a cluster that the group fills has no such room. Volcano sends a group back when none of its
pods runs and one pod is missing, as when a master fails while its workers wait for it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from crds import labels
from crds.resources.amounts import NOTHING, PODS, Amounts, add, scale
from crds.torchjob import demand
from crds.torchjob.stages import Stage
from crds.torchjob.status import Admission
from crds.torchjob.tasks import WORKER
from crds.torchjob.torchjob import TorchJob
from gang import backend
from gang.backend import Backend
from gang.values import Gang, GroupView
from reconcilers.plan.progress import JobProgress
from reconcilers.pods import task_members
from reconcilers.pods.task_members import PodMember
from reconcilers.values import Action, Blocker, CreateObject, DeleteObject, PatchObject
from reconcilers.views.pod_view import PodView

DEFAULT_SCHEDULER = "default-scheduler"
"""The scheduler of pods that name none."""
OTHER_SCHEDULER = "GangSchedulerMismatch"
"""Reason: a template names a scheduler other than the one that binds the gang."""

STUCK = "PodGroupStuck"
"""Reason: a group that should no longer exist has the name of the next one."""
RECHECK_SECONDS = 30.0
"""How soon the queue that refuses a group is checked again, in seconds."""


@dataclass(frozen=True, slots=True)
class Groups:
    """The actions for a job's groups, and what these groups allow."""

    actions: tuple[Action, ...] = ()
    ready: frozenset[int] = frozenset()
    """The stages whose pods may be created."""
    alone: frozenset[str] = frozenset()
    """The names of the pods in no gang, which are bound by themselves."""
    later: frozenset[str] = frozenset()
    """The names of those of them that are created once the gang is bound."""
    blocker: Blocker | None = None
    requeue_after: float | None = None
    """Seconds after which the key is observed again: no event reports that a gang scheduler's own queue was opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """How the pods of an admission are bound."""

    job: TorchJob
    admission: Admission
    backend: Backend
    default_queue: str = ""
    """The queue of the gang scheduler for a job that names none; empty: the scheduler's own default."""
    at_once: bool = False
    """Whether pods are created before their group is let in."""
    now: float = 0.0
    """The time in seconds since the epoch."""

    @property
    def together(self) -> bool:
        """Whether a gang scheduler binds the pods of a stage all or none."""
        return self.backend.together

    @property
    def queue(self) -> str:
        """The queue of the gang scheduler: the queue that the job names, else the queue that its tenant queue names."""
        return self.job.spec.scheduling_policy.gang_queue or self.default_queue

    def incomplete_tasks(self, progress: JobProgress, pods: Sequence[PodView]) -> frozenset[str]:
        """Return the tasks with missing pods that are not created again.

        A gang that counted them would never be bound.
        """
        present = Counter(pod.task for pod in pods if not pod.deleting)
        minimums = {task_type: self.least(task_type) for task_type in progress.passed}
        return frozenset(task_type for task_type, least in minimums.items() if present[task_type.lower()] < least)

    def least(self, task_type: str) -> int:
        """Return the number of pods of a task that are bound all or none.

        The elastic minimum never changes. Without an elastic minimum, added workers count only when all of them run:
        a gang that counted added workers earlier would have too few bound pods.
        """
        scaling, least = self.job.status.scaling, self.job.spec.gang_members(task_type)
        is_joining = scaling is not None and scaling.deadline is not None
        if scaling is None or not is_joining or task_type != WORKER or self.job.spec.worker_range is not None:
            return least
        return min(least, scaling.from_workers)

    def gang(self, stage: Stage, without: Collection[str] = ()) -> Gang:
        """Return the gang of a stage, `without` some of its tasks."""
        spec, name = self.job.spec, self.job.metadata.name
        training = task_members.training_tasks(
            spec, (task_type for task_type in stage.tasks if task_type not in without)
        )
        least = {task_type: self.least(task_type) for task_type in training}
        return Gang(
            name=f"{name}-{stage.index}",
            namespace=self.job.metadata.namespace,
            owner=self.job.owner,
            labels={
                labels.JOB_NAME: name,
                labels.JOB_UID: self.job.metadata.uid,
                labels.ATTEMPT: str(self.admission.attempt),
            },
            minimum={task_type.lower(): count for task_type, count in least.items()},
            total=sum(spec.tasks[task_type].num_tasks for task_type in training),
            resources=_resources(self.job, least),
            queue=self.queue,
            priority_class=spec.scheduling_policy.priority_class_name,
        )

    def _outside(
        self, expected: Collection[tuple[Stage, Gang]], pods: Sequence[PodView], members: Iterable[PodMember]
    ) -> Groups:
        """Return which pods are in no gang.

        Where a gang's size is fixed, a gang has the first pods of each task, up to its minimum, and no pod is added
        once one of these pods is bound.
        """
        if not (self.together and self.backend.is_fixed):
            return Groups()
        gangs = {stage.index: gang for stage, gang in expected}
        bound = {
            stage.index
            for stage, _ in expected
            if any(pod.node or pod.phase != "Pending" for pod in _existing_pods(self.job, stage, pods))
        }
        places, others = Counter[str](), []
        for member in members:
            gang, task_type = gangs.get(member.stage), member.task_type.lower()
            places[task_type] += 1
            if gang is not None and (member.stage in bound or places[task_type] > gang.minimum.get(task_type, 0)):
                others.append(member)
        later = frozenset(member.name for member in others if member.stage not in bound)
        return Groups(alone=frozenset(member.name for member in others), later=later)

    def groups(
        self,
        progress: JobProgress,
        current: Sequence[GroupView],
        pods: Sequence[PodView],
        members: Iterable[PodMember] = (),
    ) -> Groups:
        """Return the next step for the groups, given the existing groups and pods and all pods that are wanted."""
        without = self.incomplete_tasks(progress, pods)
        expected = self._expected_gangs(progress, without) if self.together else {}
        matching = {
            group.name: group
            for group in current
            if self._is_ours(group)
            and group.name in expected
            and not self._is_outgrown(expected[group.name][1], group, pods)
        }
        others = [group for group in current if matching.get(group.name) is not group]
        mismatch = self._scheduler_mismatch(stage for stage, _ in expected.values())
        if mismatch is not None:
            return Groups(delete_groups(others), blocker=mismatch)
        other_names = {group.name for group in others}
        steps = [
            self._step(stage, gang, matching.get(gang.name), _existing_pods(self.job, stage, pods))
            for stage, gang in expected.values()
            if gang.name not in other_names
        ]
        return replace(
            self._outside(expected.values(), pods, members),
            actions=delete_groups(others) + tuple(action for step in steps for action in step.actions),
            ready=frozenset(stage for step in steps for stage in step.ready),
            blocker=next((step.blocker for step in steps if step.blocker is not None), None)
            or _stuck_blocker(group for group in others if group.name in expected),
            requeue_after=next((step.requeue_after for step in steps if step.requeue_after is not None), None),
        )

    def _expected_gangs(self, progress: JobProgress, without: Collection[str]) -> dict[str, tuple[Stage, Gang]]:
        """Return a gang for each stage that still has pods to be bound, now or later."""
        expected = {}
        for stage in progress.begun:
            training = task_members.training_tasks(self.job.spec, stage.tasks)
            if not all(map(progress.done, training)):
                gang = self.gang(stage, without)
                expected[gang.name] = (stage, gang)
        return expected

    def _is_ours(self, group: GroupView) -> bool:
        same = (group.resource, group.attempt) == (self.backend.resource, self.admission.attempt)
        return same and not group.deleting

    def _is_outgrown(self, gang: Gang, group: GroupView, pods: Iterable[PodView]) -> bool:
        """Return whether a group has another size than its gang, which cannot be changed, and has no pods."""
        is_empty = not any(pod.task in gang.minimum for pod in pods)
        return self.backend.is_fixed and is_empty and bool(self.backend.resize(gang, group))

    def _step(self, stage: Stage, gang: Gang, group: GroupView | None, pods: Sequence[PodView]) -> Groups:
        if group is None:
            manifest = self.backend.create(gang)
            if manifest is None or self.backend.resource is None:
                return Groups(ready=frozenset({stage.index}))
            at_once = self.at_once or bool(pods)
            # A group with pods exists already. Its size may be another one, though the cache does not show it yet.
            target = self._reachable(gang, pods)
            correction = self.backend.size(target) if pods and _may_get(target, gang, pods, self.backend) else {}
            creation = CreateObject(
                self.backend.resource, manifest, remedy=_remedy(self.backend), correction=correction
            )
            return Groups((creation,), frozenset({stage.index} if at_once else ()))
        patch, again = self._change(gang, group, pods)
        changed = (PatchObject(group.resource, group.name, patch),) if patch else ()
        ready = group.phase == "Ready" or self.at_once or bool(pods)
        may_be_made = frozenset({stage.index} if ready else ())
        if group.phase != "Refused":
            return Groups(changed, may_be_made, requeue_after=again)
        blocker = Blocker(group.reason, group.message)
        return Groups(changed, may_be_made, blocker=blocker, requeue_after=RECHECK_SECONDS)

    def _change(
        self, gang: Gang, group: GroupView, pods: Sequence[PodView]
    ) -> tuple[Mapping[str, Any] | None, float | None]:
        """Return the patch of a group, and the seconds after which it is written again so that its scheduler tries
        again."""
        waiting = _is_any_waiting(pods)
        target = self._reachable(gang, pods)
        bound = sum(bool(pod.node) and pod.phase != "Failed" for pod in pods)
        if group.phase == "Pending" and 0 < bound < gang.size:  # it was let in before
            target = replace(target, resources=NOTHING)
        change = dict(self.backend.resize(target, group) or {} if _may_get(target, gang, pods, self.backend) else {})
        again: float | None = None
        interval = self.backend.touch_seconds
        if waiting and interval is not None:
            again = max(0.0, group.written + interval - self.now)
            if not again or change:
                change, again = {**change, **backend.touch(self.now)}, interval
        if change:
            change["metadata"] = {**change.get("metadata", {}), "uid": group.uid}
        return change or None, again

    def _reachable(self, gang: Gang, pods: Iterable[PodView]) -> Gang:
        """Return the gang with a minimum that the pods can reach that have not succeeded."""
        ended = Counter(pod.task for pod in pods if pod.phase == "Succeeded")
        if not ended:
            return gang
        minimum = {task_type: least - ended[task_type] for task_type, least in gang.minimum.items()}
        left = {task_type: least for task_type, least in minimum.items() if least > 0}
        names = {task_type.lower(): task_type for task_type in self.job.spec.tasks}
        resources = _resources(self.job, {names[task_type]: least for task_type, least in left.items()})
        return replace(gang, minimum=left or {next(iter(gang.minimum)): 1}, resources=resources)

    def scheduler_of(self, task_type: str) -> str:
        """Return the scheduler to which the pods of a task belong, by its template or its gang."""
        named = self.job.spec.tasks[task_type].template["spec"].get("schedulerName")
        return named or self.backend.scheduler or DEFAULT_SCHEDULER

    def _scheduler_mismatch(self, stages: Iterable[Stage]) -> Blocker | None:
        """Return the blocker for templates of one gang with different schedulers: no scheduler would bind them."""
        for stage in stages:
            training = task_members.training_tasks(self.job.spec, stage.tasks)
            expected = self.backend.scheduler or self.scheduler_of(training[0])
            for task_type in training:
                if (scheduler := self.scheduler_of(task_type)) != expected:
                    return Blocker(
                        OTHER_SCHEDULER,
                        f"spec.torchTaskSpecs.{task_type}.template.spec.schedulerName is {scheduler}, but {expected} "
                        f"binds other pods of the gang ({self.backend.name}): leave it out, give all of them the same, "
                        "or set spec.schedulingPolicy.gangScheduler to none",
                    )
        return None


def delete_groups(groups: Iterable[GroupView]) -> tuple[Action, ...]:
    """Delete the groups."""
    return tuple(DeleteObject(group.resource, group.name, group.uid) for group in groups if not group.deleting)


def _stuck_blocker(groups: Iterable[GroupView]) -> Blocker | None:
    """Return the blocker for a group that has the name of an expected group and is not deleted. A group has no grace,
    so finalizers keep it."""
    stuck_group = next((group for group in groups if group.deleting), None)
    if stuck_group is None:
        return None
    return Blocker(STUCK, f"{stuck_group.resource.kind} {stuck_group.name} should be deleted, but finalizers keep it")


def _existing_pods(job: TorchJob, stage: Stage, pods: Iterable[PodView]) -> Sequence[PodView]:
    """Return the existing pods of a gang, without pods that are being deleted."""
    names = {task_type.lower() for task_type in task_members.training_tasks(job.spec, stage.tasks)}
    replaced = frozenset(job.status.replacing)
    return [pod for pod in pods if pod.task in names and not pod.deleting and pod.uid not in replaced]


def _may_get(target: Gang, gang: Gang, pods: Sequence[PodView], scheduler: Backend) -> bool:
    """Return whether the group of a gang may get the minimum of the target, which the pods can reach.

    The minimum must not exceed the number of pods. Once some pods have ended and all other pods are bound, the minimum
    has no effect.
    """
    all_bound = not _is_any_waiting(pods) and len(pods) >= gang.total
    has_ended = any(pod.phase == "Succeeded" for pod in pods)
    return not scheduler.is_fixed and (not pods or target.size <= len(pods)) and not (has_ended and all_bound)


def _is_any_waiting(pods: Iterable[PodView]) -> bool:
    """Return whether a pod has no node yet."""
    return any(pod.phase == "Pending" and not pod.node for pod in pods)


def _resources(job: TorchJob, least: Mapping[str, int]) -> Amounts:
    """Return the total requests of the minimum of pods of each task, without the count of pods, which gang schedulers
    count themselves."""
    amounts = (scale(demand.pod_charge(job.spec.tasks[name]), count) for name, count in least.items())
    together = reduce(add, amounts, dict(NOTHING))
    return {name: amount for name, amount in together.items() if name != PODS}


def _remedy(backend: Backend) -> str:
    install = (
        "have the API server serve it (GenericWorkload)" if backend.name == "kubernetes" else f"install {backend.name}"
    )
    return f"{install}, or set spec.schedulingPolicy.gangScheduler to another one or to none"
