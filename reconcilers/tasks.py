"""Which pods a job has: their ranks, their gangs, and which of them may start.

One rule: pure, over the spec alone and counts of pods. Tasks keep one stable order, Master first, and so do ranks.

Tasks between which nobody waits for a success run together; they form a stage and share one world (RANK, WORLD_SIZE),
led by its rank 0. Without such dependencies the job is one stage. An AIMaster belongs to no world. Tasks that wait for
the same things are created together: they are one gang, bound all or none.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crds.jobspec import TorchJobSpec
from crds.status import TaskStatus
from crds.tasks import AI_MASTER, MASTER, TaskSpec
from crds.torchjob import TorchJob
from gang.members import Members

Counts = Mapping[str, TaskStatus]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One pod of the job, whether it exists or not."""

    name: str
    task_type: str
    index: int
    lead: str
    """The rank 0 of the pod's stage; empty if the stage has none."""
    rank: int | None
    """None for an AIMaster, which belongs to no world."""
    world_size: int
    gang: str
    gang_size: int


def members(job: TorchJob, attempt: int) -> dict[str, Member]:
    """Every pod the job has when all of it runs under an admission, by name, in the order of ranks."""
    spec, stages = job.spec, _stages(job.spec)
    gates = [_gate(task) for task in spec.tasks.values()]
    found = {}
    for (task_type, task), gate in zip(spec.tasks.items(), gates, strict=True):
        world = [each for each in spec.tasks if each != AI_MASTER and stages[each] == stages[task_type]]
        first_rank = _pods(spec, world[: world.index(task_type)]) if task_type in world else None
        lead = job.pod_name(world[0], 0) if world else ""
        world_size = _pods(spec, world)
        gang = f"{job.metadata.uid}-{attempt}-{_generation(job)}-{gates.index(gate)}"
        gang_size = sum(task.num_tasks for task in spec.tasks.values() if _gate(task) == gate)
        for index in range(task.num_tasks):
            name = job.pod_name(task_type, index)
            found[name] = Member(
                name=name,
                task_type=task_type,
                index=index,
                lead=lead,
                rank=None if first_rank is None else first_rank + index,
                world_size=world_size,
                gang=gang,
                gang_size=gang_size,
            )
    return found


def _pods(spec: TorchJobSpec, task_types: Iterable[str]) -> int:
    return sum(spec.tasks[each].num_tasks for each in task_types)


def _generation(job: TorchJob) -> int:
    """A restart of the whole job is a new gang; a single pod that is replaced joins the gang that runs."""
    return job.status.restart_generation if job.spec.scope == "Job" else 0


def _gate(task: TaskSpec) -> frozenset[tuple[str, str]]:
    return frozenset((each.task_type, each.phase) for each in task.depends_on)


def _stages(spec: TorchJobSpec) -> dict[str, int]:
    """How many successes lie between the job's start and each task's."""
    stages: dict[str, int] = {}
    while len(stages) < len(spec.tasks):  # each round settles a task at least: the dependencies have no cycle
        for task_type, task in spec.tasks.items():
            if all(each.task_type in stages for each in task.depends_on):
                levels = (stages[each.task_type] + (each.phase == "Succeeded") for each in task.depends_on)
                stages[task_type] = max(levels, default=0)
    return stages


def counted(spec: TorchJobSpec, counts: Counts, task_type: str) -> Members:
    """A task as its gang sees it."""
    count = counts[task_type]
    return Members(
        wanted=spec.tasks[task_type].num_tasks,
        minimum=spec.members(task_type),
        running=count.ready,
        succeeded=count.succeeded,
    )


def unlocked(spec: TorchJobSpec, counts: Counts, task_type: str) -> bool:
    """Whether everything a task depends on has come so far. What failed never has."""
    return all(
        upstream.done if each.phase == "Succeeded" else upstream.enough
        for each in spec.tasks[task_type].depends_on
        for upstream in [counted(spec, counts, each.task_type)]
    )


def decisive(spec: TorchJobSpec) -> frozenset[str]:
    """The tasks whose success is the job's.

    With a Master: the Master, and tasks that start after a success which the Master did not wait for (an evaluation at
    the end). Without: all. A task that is always restarted never succeeds and decides nothing.
    """
    lasting = {each for each, task in spec.tasks.items() if task.restart_policy == "Always"}
    if MASTER not in spec.tasks:
        return frozenset(spec.tasks) - lasting
    before = _upstream(spec, MASTER)
    after = {
        task_type
        for task_type, task in spec.tasks.items()
        if any(each.phase == "Succeeded" and each.task_type not in before for each in task.depends_on)
    }
    return frozenset({MASTER} | after) - lasting


def _upstream(spec: TorchJobSpec, task_type: str) -> frozenset[str]:
    """Everything a task depends on, near and far."""
    found: set[str] = set()
    ahead = [task_type]
    while ahead:
        near = {each.task_type for each in spec.tasks[ahead.pop()].depends_on} - found
        found |= near
        ahead.extend(near)
    return frozenset(found)
