"""The groups of pods that a gang scheduler binds all or none: one for each stage that has begun.

One rule: pure. A group comes before its pods and goes when its stage, or the job's admission, is over. A restart keeps
it; another admission has one of its own. Auxiliary tasks are in no group.

A stage's pods are made at once, when its group is not Pending or some of them are there already; with `pods_at_once`
without waiting. Which of them may start, `reconcilers.plan.start_gates` says.

A group that is Pending again while some of its pods have their nodes asks for no resources, until it is let in: its
scheduler would look for room for all of it beside what it has already, and a cluster that it fills has none. Volcano
sends a group back when none of its pods runs and one is missing, as when a master fails while its workers wait for it.
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
from crds.torchjob.torchjob import TorchJob
from gang.backend import Backend
from gang.values import Gang, GroupView
from reconcilers.plan.progress import Progress
from reconcilers.pods import task_members
from reconcilers.values import Action, Change, Hindrance, Make, Remove
from reconcilers.views.pod_view import PodView

OTHER_SCHEDULER = "GangSchedulerMismatch"
"""Reason: a template names another scheduler than the one that is to bind the gang."""

STUCK = "PodGroupStuck"
"""Reason: a group that should be gone has the name that the next one needs."""
RECHECK_SECONDS = 30.0
"""How soon to ask again for a queue that refuses a group."""


@dataclass(frozen=True, slots=True)
class Groups:
    """What to do about a job's groups, and what they let be done."""

    actions: tuple[Action, ...] = ()
    ready: frozenset[int] = frozenset()
    """The stages whose pods may be made."""
    hindrance: Hindrance | None = None
    again: float | None = None
    """Seconds after which to look again: nobody tells when a gang scheduler opens a queue of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """How the pods of an admission are bound."""

    job: TorchJob
    admission: Admission
    backend: Backend
    at_once: bool = False
    """Whether pods are made before their group is let in."""

    @property
    def together(self) -> bool:
        """Whether a gang scheduler binds the pods of a stage all or none."""
        return self.backend.together

    def gone(self, progress: Progress, pods: Sequence[PodView]) -> frozenset[str]:
        """The tasks of which pods are missing that are not made again: a gang that asked for them would never be bound.
        Those that have succeeded and are still there count with every scheduler."""
        there = Counter(pod.task for pod in pods if not pod.deleting)
        wanted = {each: self.job.spec.gang_members(each) for each in progress.passed}
        return frozenset(each for each, least in wanted.items() if there[each.lower()] < least)

    def gang(self, stage: Stage, without: Collection[str] = ()) -> Gang:
        """A stage as its scheduler is told of it, `without` some of its tasks."""
        spec, name = self.job.spec, self.job.metadata.name
        training = task_members.training(spec, (each for each in stage.tasks if each not in without))
        least = {each: spec.gang_members(each) for each in training}
        return Gang(
            name=f"{name}-{stage.index}",
            namespace=self.job.metadata.namespace,
            owner=self.job.owner,
            labels={
                labels.JOB_NAME: name,
                labels.JOB_UID: self.job.metadata.uid,
                labels.ATTEMPT: str(self.admission.attempt),
            },
            minimum={each.lower(): count for each, count in least.items()},
            total=sum(spec.tasks[each].num_tasks for each in training),
            resources=_resources(self.job, least),
            queue=spec.scheduling_policy.gang_queue,
            priority_class=spec.scheduling_policy.priority_class_name,
        )

    def groups(self, progress: Progress, found: Sequence[GroupView], pods: Sequence[PodView]) -> Groups:
        """The next step from the groups and pods that there are."""
        wanted = self._wanted(progress, self.gone(progress, pods)) if self.together else {}
        here = {each.name: each for each in found if self._is_ours(each) and each.name in wanted}
        others = [each for each in found if here.get(each.name) is not each]
        mismatch = self._mismatch(stage for stage, _ in wanted.values())
        if mismatch is not None:
            return Groups(removed(others), hindrance=mismatch)
        taken = {each.name for each in others}
        steps = [
            self._step(stage, gang, here.get(gang.name), _there(self.job, stage, pods))
            for stage, gang in wanted.values()
            if gang.name not in taken
        ]
        return Groups(
            removed(others) + tuple(action for step in steps for action in step.actions),
            frozenset(stage for step in steps for stage in step.ready),
            next((step.hindrance for step in steps if step.hindrance is not None), None)
            or _stuck(each for each in others if each.name in wanted),
            next((step.again for step in steps if step.again is not None), None),
        )

    def _wanted(self, progress: Progress, gone: Collection[str]) -> dict[str, tuple[Stage, Gang]]:
        """A group for each stage of which some pod, now or later, has to be bound."""
        found = {}
        for stage in progress.begun:
            training = task_members.training(self.job.spec, stage.tasks)
            if not all(map(progress.done, training)):
                gang = self.gang(stage, gone)
                found[gang.name] = (stage, gang)
        return found

    def _is_ours(self, group: GroupView) -> bool:
        same = (group.resource, group.attempt) == (self.backend.resource, self.admission.attempt)
        return same and not group.deleting

    def _step(self, stage: Stage, gang: Gang, group: GroupView | None, pods: Sequence[PodView]) -> Groups:
        if group is None:
            made = self.backend.create(gang)
            if made is None or self.backend.resource is None:
                return Groups(ready=frozenset({stage.index}))
            at_once = self.at_once or bool(pods)
            make = Make(self.backend.resource, made, remedy=_remedy(self.backend))
            return Groups((make,), frozenset({stage.index} if at_once else ()))
        # The gang's minimum may not be more than there is.
        wanted = replace(gang, resources=NOTHING) if _in_part(gang, group, pods) else gang
        change = self.backend.resize(wanted, group) if not pods or gang.size <= len(pods) else None
        identity = {"metadata": {"uid": group.uid}}
        changed = (Change(group.resource, group.name, {**change, **identity}),) if change else ()
        ready = group.phase == "Ready" or self.at_once or bool(pods)
        may_be_made = frozenset({stage.index} if ready else ())
        if group.phase != "Refused":
            return Groups(changed, may_be_made)
        return Groups(changed, may_be_made, Hindrance(group.reason, group.message), RECHECK_SECONDS)

    def _mismatch(self, stages: Iterable[Stage]) -> Hindrance | None:
        """A pod of another scheduler would never be bound with the others."""
        wanted = self.backend.scheduler
        training = (each for stage in stages for each in task_members.training(self.job.spec, stage.tasks))
        for task_type in training:
            named = self.job.spec.tasks[task_type].template["spec"].get("schedulerName")
            if wanted and named and named != wanted:
                return Hindrance(
                    OTHER_SCHEDULER,
                    f"spec.torchTaskSpecs.{task_type}.template.spec.schedulerName is {named}, but {self.backend.name} "
                    "is to bind the job's pods: leave it out, or set spec.schedulingPolicy.gangScheduler to none",
                )
        return None


def removed(groups: Iterable[GroupView]) -> tuple[Action, ...]:
    """All of these go."""
    return tuple(Remove(each.resource, each.name, each.uid) for each in groups if not each.deleting)


def _stuck(taken: Iterable[GroupView]) -> Hindrance | None:
    """One that has the name of a group that is wanted, and does not go: a group has no grace, so others hold it."""
    held = next((each for each in taken if each.deleting), None)
    if held is None:
        return None
    return Hindrance(STUCK, f"{held.resource.kind} {held.name} should be gone, but finalizers keep it")


def _there(job: TorchJob, stage: Stage, pods: Iterable[PodView]) -> Sequence[PodView]:
    """The pods of a gang that there are."""
    names = {each.lower() for each in task_members.training(job.spec, stage.tasks)}
    return [pod for pod in pods if pod.task in names and not pod.deleting]


def _in_part(gang: Gang, group: GroupView, pods: Iterable[PodView]) -> bool:
    """Whether a group waits to be let in that has been let in before: its pods are where they were bound."""
    bound = sum(bool(pod.node) and pod.phase != "Failed" for pod in pods)
    return group.phase == "Pending" and 0 < bound < gang.size


def _resources(job: TorchJob, least: Mapping[str, int]) -> Amounts:
    """What so many pods of each task ask for together; gang schedulers count pods by themselves."""
    each = (scale(demand.pod_charge(job.spec.tasks[name]), count) for name, count in least.items())
    together = reduce(add, each, dict(NOTHING))
    return {name: amount for name, amount in together.items() if name != PODS}


def _remedy(backend: Backend) -> str:
    install = (
        "have the API server serve it (GenericWorkload)" if backend.name == "kubernetes" else f"install {backend.name}"
    )
    return f"{install}, or set spec.schedulingPolicy.gangScheduler to another one or to none"
