"""The pods of a job: their stages, their ranks, and the pods with which each pod is bound.

One rule: pure, over the spec alone and counts of pods. Tasks keep one stable order, Master first, and so do ranks.

The tasks of a stage (`crds.torchjob.stages`) that are not auxiliary share one world (RANK, WORLD_SIZE), which is led by
its rank 0. The workers of an elastic job meet at its rendezvous store instead, where torchrun gives them their ranks.
Without a gang scheduler a task's pods are created once its upstream tasks have progressed far enough. Tasks with the
same upstream tasks are created together, and are labelled as one gang for schedulers that read the label.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from crds.torchjob.jobspec import TorchJobSpec
from crds.torchjob.stages import Stage
from crds.torchjob.status import TaskStatus
from crds.torchjob.tasks import MASTER, RENDEZVOUS, WORKER, TaskSpec
from crds.torchjob.torchjob import TorchJob
from gang.values import TaskMembers
from reconcilers.views.pod_view import PodView

Counts = Mapping[str, TaskStatus]
LABELS_CHANGED = "LabelsChanged: its labels were changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodMember:
    """One pod of the job, whether it exists or not."""

    name: str
    task_type: str
    index: int
    stage: int
    lead: str
    """The name of the pod to which the pods of the stage connect: its rank 0 or the rendezvous store; empty if they
    connect to none."""
    rank: int | None
    """The pod's rank; None for an auxiliary task, which belongs to no world. torchrun chooses the ranks of pods that
    meet at a rendezvous store."""
    world_size: int
    gang: str
    """The name of the group of pods that are created together with this one, where no gang scheduler binds it."""
    gang_size: int
    joins: bool = False
    """Whether the pod waits at its start gate until it joins the world that the other pods have begun without it."""
    spot: bool = False
    """Whether the pod may run on a cheaper, preemptible node. The last pods of a task may, so rank 0 is the last to do
    so."""

    def is_labelled(self, pod: PodView) -> bool:
        """Return whether the labels of a pod of this name agree with the name."""
        return (pod.task, pod.index) == (self.task_type.lower(), self.index)

    def show(self, pod: PodView) -> PodView:
        """Return the pod of this name with its effective state.

        Users can change the labels of a pod, and services find the pod by its labels. So unless it has ended, a pod
        whose labels do not agree with its name is as good as deleted.
        """
        if self.is_labelled(pod):
            return pod
        named = replace(pod, task=self.task_type.lower(), index=self.index)
        return named if pod.finished else replace(named, deleting=True, disruption=LABELS_CHANGED)


def members(
    job: TorchJob,
    attempt: int,
    workers: Sequence[int] | None = None,
    world: int | None = None,
    joining: frozenset[int] = frozenset(),
) -> dict[str, PodMember]:
    """Return every pod of the job under an admission, by name, in the order of ranks.

    `workers` are the indexes of the workers; None means the lowest indexes. `world` is the number of workers that ranks
    count, for a job whose ranks and world size do not depend on the workers that it has; None means the number of
    workers that the job has. `joining` are the indexes of workers that have no rank yet.
    """
    spec = job.spec
    gates = [_gate(task) for task in spec.tasks.values()]
    stage_of = {name: stage for stage in spec.stages for name in stage.tasks}
    sizes = {name: world if world and name == WORKER else task.num_tasks for name, task in spec.tasks.items()}
    if joining:
        sizes[WORKER] -= len(joining)
    result = {}
    for (task_type, task), gate in zip(spec.tasks.items(), gates, strict=True):
        stage = stage_of[task_type]
        ranked = training_tasks(spec, stage.tasks)
        first_rank = _sum(sizes, ranked[: ranked.index(task_type)]) if task_type in ranked else None
        is_store = spec.rendezvous and task_type == RENDEZVOUS
        lead = job.pod_name(RENDEZVOUS, 0) if is_store else _lead(job, stage, workers)
        world_size = _sum(sizes, ranked)
        gang = f"{job.metadata.uid}-{attempt}-{gates.index(gate)}"
        gang_size = sum(task.num_tasks for task in spec.tasks.values() if _gate(task) == gate)
        indexes = workers if workers is not None and task_type == WORKER else range(task.num_tasks)
        is_worker = task_type == WORKER
        present = (index for index in indexes if index not in (joining if is_worker else frozenset()))
        offsets = {index: index if world and is_worker else place for place, index in enumerate(present)}
        spot_count = task.spot_task_spec.num_spot_tasks if task.spot_task_spec is not None else 0
        for place, index in enumerate(indexes):
            name, offset = job.pod_name(task_type, index), offsets.get(index)
            result[name] = PodMember(
                name=name,
                task_type=task_type,
                index=index,
                stage=stage.index,
                lead=lead,
                rank=None if first_rank is None or offset is None else first_rank + offset,
                world_size=world_size,
                gang=gang,
                gang_size=gang_size,
                joins=offset is None,
                spot=place >= len(indexes) - spot_count,
            )
    return result


def lead_pods(job: TorchJob) -> list[str]:
    """Return the names of the pods that others connect to, one for each stage that is a world."""
    return [lead for stage in job.spec.stages if (lead := _lead(job, stage, None))]


def meeting_tasks(spec: TorchJobSpec) -> frozenset[str]:
    """Return the tasks whose pods meet at the job's rendezvous store: the tasks of the world to which the workers
    belong.
    """
    if not spec.rendezvous:
        return frozenset()
    stage = next(stage for stage in spec.stages if WORKER in stage.tasks)
    return frozenset(training_tasks(spec, stage.tasks))


def _lead(job: TorchJob, stage: Stage, workers: Sequence[int] | None) -> str:
    """Return the name of the pod to which the pods of a stage connect; empty if there is no such pod."""
    if job.spec.rendezvous and WORKER in stage.tasks:
        return job.pod_name(RENDEZVOUS, 0)
    ranked = training_tasks(job.spec, stage.tasks)
    return job.pod_name(ranked[0], workers[0] if workers and ranked[0] == WORKER else 0) if ranked else ""


def training_tasks(spec: TorchJobSpec, task_types: Iterable[str]) -> list[str]:
    """Return the tasks, of those given, that are not auxiliary."""
    return [task_type for task_type in task_types if not spec.tasks[task_type].auxiliary]


def _sum(sizes: Mapping[str, int], task_types: Iterable[str]) -> int:
    return sum(sizes[task_type] for task_type in task_types)


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


def needs_all_tasks(job: TorchJob) -> bool:
    """Return whether an admitted job has succeeded only when all pods of its deciding tasks have.

    Such a job was admitted with the policy AllTasks, or with the policy Master although it has no Master. An admission
    of an earlier version has no policy.
    """
    policy = job.admission.success_policy if job.admission is not None else None
    return policy == "AllTasks" or (policy is not None and MASTER not in job.spec.tasks)


def decisive_tasks(job: TorchJob) -> frozenset[str]:
    """Return the tasks whose success decides the success of an admitted job.

    A task that is always restarted never succeeds and does not decide, and neither does a rendezvous store. An
    auxiliary task decides only if there is no other task. All of the remaining tasks decide the success. Under the
    policy Master, only the Master does, and the tasks that start after a success for which the Master did not wait (an
    evaluation at the end).
    """
    spec = job.spec
    endless = {RENDEZVOUS} if spec.rendezvous else set[str]()
    endless |= {task_type for task_type, task in spec.tasks.items() if task.restart_policy == "Always"}
    ending = [task_type for task_type in spec.tasks if task_type not in endless]
    deciding = frozenset(training_tasks(spec, ending) or ending)
    if MASTER not in deciding or needs_all_tasks(job):
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
