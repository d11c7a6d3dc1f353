"""The groups of pods that a gang scheduler binds all or none: one for each stage that has begun.

One rule: pure. A group is created before its pods and deleted when its stage, or the job's admission, is over. A
restart keeps the group; another admission has its own. Auxiliary tasks are in no group.

A stage's pods are created when its group is not Pending, or when some of them exist already. With `pods_at_once` they
do not wait for the group. `reconcilers.plan.advance` opens their gates when they may start.

A group may become Pending again while some of its pods have their nodes. It then requests no resources until it is let
in. Otherwise its scheduler would look for room for the whole group beside the resources it has, and a cluster that the
group fills has no such room. Volcano sends a group back when none of its pods runs and one is missing, as when a master
fails while its workers wait for it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from crds import labels
from crds.resources.amounts import NOTHING, PODS, Amounts, add, scale
from crds.torchjob import demand
from crds.torchjob.stages import Stage
from crds.torchjob.status import Admission
from crds.torchjob.tasks import WORKER
from crds.torchjob.torchjob import TorchJob
from gang.backend import Backend
from gang.values import Gang, GroupView
from reconcilers.plan.progress import JobProgress
from reconcilers.pods import task_members
from reconcilers.values import Action, Blocker, CreateObject, DeleteObject, PatchObject
from reconcilers.views.pod_view import PodView

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
    blocker: Blocker | None = None
    requeue_after: float | None = None
    """Seconds after which the key is observed again: no event reports that a gang scheduler's own queue was opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """How the pods of an admission are bound."""

    job: TorchJob
    admission: Admission
    backend: Backend
    at_once: bool = False
    """Whether pods are created before their group is let in."""

    @property
    def together(self) -> bool:
        """Whether a gang scheduler binds the pods of a stage all or none."""
        return self.backend.together

    def incomplete_tasks(self, progress: JobProgress, pods: Sequence[PodView]) -> frozenset[str]:
        """Return the tasks with missing pods that are not created again.

        A gang that counted them would never be bound. Succeeded pods that still exist count with every scheduler.
        """
        present = Counter(pod.task for pod in pods if not pod.deleting)
        minimums = {task_type: self.least(task_type) for task_type in progress.passed}
        return frozenset(task_type for task_type, least in minimums.items() if present[task_type.lower()] < least)

    def least(self, task_type: str) -> int:
        """Return the number of pods of a task that are bound all or none.

        The elastic minimum never changes. Without one, added workers count only when all of them run: a gang that
        counted them before would have too few bound pods.
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
            queue=spec.scheduling_policy.gang_queue,
            priority_class=spec.scheduling_policy.priority_class_name,
        )

    def groups(self, progress: JobProgress, current: Sequence[GroupView], pods: Sequence[PodView]) -> Groups:
        """Return the next step for the groups, given the existing groups and pods."""
        expected = self._expected_gangs(progress, self.incomplete_tasks(progress, pods)) if self.together else {}
        matching = {group.name: group for group in current if self._is_ours(group) and group.name in expected}
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
        return Groups(
            delete_groups(others) + tuple(action for step in steps for action in step.actions),
            frozenset(stage for step in steps for stage in step.ready),
            next((step.blocker for step in steps if step.blocker is not None), None)
            or _stuck_blocker(group for group in others if group.name in expected),
            next((step.requeue_after for step in steps if step.requeue_after is not None), None),
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

    def _step(self, stage: Stage, gang: Gang, group: GroupView | None, pods: Sequence[PodView]) -> Groups:
        if group is None:
            manifest = self.backend.create(gang)
            if manifest is None or self.backend.resource is None:
                return Groups(ready=frozenset({stage.index}))
            at_once = self.at_once or bool(pods)
            creation = CreateObject(self.backend.resource, manifest, remedy=_remedy(self.backend))
            return Groups((creation,), frozenset({stage.index} if at_once else ()))
        # The gang's minimum must not exceed the number of pods.
        target = replace(gang, resources=NOTHING) if _is_partly_bound(gang, group, pods) else gang
        change = self.backend.resize(target, group) if not pods or gang.size <= len(pods) else None
        identity = {"metadata": {"uid": group.uid}}
        changed = (PatchObject(group.resource, group.name, {**change, **identity}),) if change else ()
        ready = group.phase == "Ready" or self.at_once or bool(pods)
        may_be_made = frozenset({stage.index} if ready else ())
        if group.phase != "Refused":
            return Groups(changed, may_be_made)
        return Groups(changed, may_be_made, Blocker(group.reason, group.message), RECHECK_SECONDS)

    def _scheduler_mismatch(self, stages: Iterable[Stage]) -> Blocker | None:
        """Return the blocker for a template with another scheduler, whose pod would never be bound with the others."""
        scheduler = self.backend.scheduler
        training = (
            task_type for stage in stages for task_type in task_members.training_tasks(self.job.spec, stage.tasks)
        )
        for task_type in training:
            template_scheduler = self.job.spec.tasks[task_type].template["spec"].get("schedulerName")
            if scheduler and template_scheduler and template_scheduler != scheduler:
                return Blocker(
                    OTHER_SCHEDULER,
                    f"spec.torchTaskSpecs.{task_type}.template.spec.schedulerName is {template_scheduler}, but "
                    f"{self.backend.name} binds the job's pods: leave it out, or set "
                    "spec.schedulingPolicy.gangScheduler to none",
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
    """Return the existing pods of a gang, without those that are being deleted."""
    names = {task_type.lower() for task_type in task_members.training_tasks(job.spec, stage.tasks)}
    replaced = frozenset(job.status.replacing)
    return [pod for pod in pods if pod.task in names and not pod.deleting and pod.uid not in replaced]


def _is_partly_bound(gang: Gang, group: GroupView, pods: Iterable[PodView]) -> bool:
    """Return whether a group waits to be let in that was let in before: some of its pods are bound."""
    bound = sum(bool(pod.node) and pod.phase != "Failed" for pod in pods)
    return group.phase == "Pending" and 0 < bound < gang.size


def _resources(job: TorchJob, least: Mapping[str, int]) -> Amounts:
    """Return what the minimum of pods of each task requests together, without the count of pods, which gang schedulers
    count themselves."""
    amounts = (scale(demand.pod_charge(job.spec.tasks[name]), count) for name, count in least.items())
    together = reduce(add, amounts, dict(NOTHING))
    return {name: amount for name, amount in together.items() if name != PODS}


def _remedy(backend: Backend) -> str:
    install = (
        "have the API server serve it (GenericWorkload)" if backend.name == "kubernetes" else f"install {backend.name}"
    )
    return f"{install}, or set spec.schedulingPolicy.gangScheduler to another one or to none"
