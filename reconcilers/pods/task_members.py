"""The pods of a job: their stages, their ranks, and the pods with which each of them is bound.

One rule: pure, over the spec alone and counts of pods. Tasks keep one stable order, Master first, and so do ranks.

The tasks of a stage (`crds.torchjob.stages`) that are not auxiliary share one world (RANK, WORLD_SIZE), led by its rank
0. Without a gang scheduler a task's pods are created once its upstream tasks have progressed far enough. Tasks with the
same upstream tasks are created together, and are labelled as one gang for schedulers that read the label.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crds.torchjob.jobspec import TorchJobSpec
from crds.torchjob.status import TaskStatus
from crds.torchjob.tasks import MASTER, TaskSpec
from crds.torchjob.torchjob import TorchJob
from gang.members import TaskMembers

Counts = Mapping[str, TaskStatus]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodMember:
    """One pod of the job, whether it exists or not."""

    name: str
    task_type: str
    index: int
    stage: int
    lead: str
    """The name of the rank 0 of the pod's stage; empty if the stage has none."""
    rank: int | None
    """The pod's rank; None for an auxiliary task, which belongs to no world."""
    world_size: int
    gang: str
    """The name of the group of pods that are created together with this one, where no gang scheduler binds it."""
    gang_size: int


def members(job: TorchJob, attempt: int) -> dict[str, PodMember]:
    """Return every pod of the job under an admission, by name, in the order of ranks."""
    spec = job.spec
    gates = [_gate(task) for task in spec.tasks.values()]
    stage_of = {name: stage for stage in spec.stages for name in stage.tasks}
    result = {}
    for (task_type, task), gate in zip(spec.tasks.items(), gates, strict=True):
        stage = stage_of[task_type]
        world = training_tasks(spec, stage.tasks)
        first_rank = _count_pods(spec, world[: world.index(task_type)]) if task_type in world else None
        lead = job.pod_name(world[0], 0) if world else ""
        world_size = _count_pods(spec, world)
        gang = f"{job.metadata.uid}-{attempt}-{gates.index(gate)}"
        gang_size = sum(task.num_tasks for task in spec.tasks.values() if _gate(task) == gate)
        for index in range(task.num_tasks):
            name = job.pod_name(task_type, index)
            result[name] = PodMember(
                name=name,
                task_type=task_type,
                index=index,
                stage=stage.index,
                lead=lead,
                rank=None if first_rank is None else first_rank + index,
                world_size=world_size,
                gang=gang,
                gang_size=gang_size,
            )
    return result


def lead_pods(job: TorchJob) -> list[str]:
    """Return the names of the job's rank 0s, one for each stage that is a world."""
    worlds = (training_tasks(job.spec, stage.tasks) for stage in job.spec.stages)
    return [job.pod_name(world[0], 0) for world in worlds if world]


def training_tasks(spec: TorchJobSpec, task_types: Iterable[str]) -> list[str]:
    """Return those of some tasks that are not auxiliary."""
    return [task_type for task_type in task_types if not spec.tasks[task_type].auxiliary]


def _count_pods(spec: TorchJobSpec, task_types: Iterable[str]) -> int:
    return sum(spec.tasks[task_type].num_tasks for task_type in task_types)


def _gate(task: TaskSpec) -> tuple[bool, frozenset[tuple[str, str]]]:
    return task.auxiliary, frozenset((dependency.task_type, dependency.phase) for dependency in task.depends_on)


def count_members(spec: TorchJobSpec, counts: Counts, task_type: str) -> TaskMembers:
    """Return the counts of a task for its gang."""
    count = counts[task_type]
    return TaskMembers(
        wanted=spec.tasks[task_type].num_tasks,
        minimum=spec.members(task_type),
        running=count.ready,
        succeeded=count.succeeded,
    )


def decisive_tasks(spec: TorchJobSpec) -> frozenset[str]:
    """Return the tasks whose success decides the success of the job.

    A task that is always restarted never succeeds and does not decide; nor does an auxiliary task, unless there is no
    other. If the Master is among the remaining tasks, the deciding tasks are the Master and the tasks that start after
    a success for which the Master did not wait (an evaluation at the end). Without a Master, all of them decide.
    """
    ending = [task_type for task_type, task in spec.tasks.items() if task.restart_policy != "Always"]
    deciding = frozenset(training_tasks(spec, ending) or ending)
    if MASTER not in deciding:
        return deciding
    before = _upstream_tasks(spec, MASTER)
    after = {
        task_type
        for task_type, task in spec.tasks.items()
        if any(dependency.phase == "Succeeded" and dependency.task_type not in before for dependency in task.depends_on)
    }
    return deciding & ({MASTER} | after)


def _upstream_tasks(spec: TorchJobSpec, task_type: str) -> frozenset[str]:
    """Return all direct and indirect upstream tasks of a task."""
    upstream: set[str] = set()
    ahead = [task_type]
    while ahead:
        near = {dependency.task_type for dependency in spec.tasks[ahead.pop()].depends_on} - upstream
        upstream |= near
        ahead.extend(near)
    return frozenset(upstream)
