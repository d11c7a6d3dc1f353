"""The job as it was granted: with the workers of its admission, not with the workers that its spec requests. And which
of these workers are not paid for.

One rule: pure. All code that counts pods of an admitted job reads the result of `as_granted`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from crds.resources import amounts
from crds.resources.amounts import Amounts
from crds.torchjob.demand import worker_share
from crds.torchjob.jobspec import TorchJobSpec
from crds.torchjob.status import Admission, TorchJobStatus
from crds.torchjob.tasks import RENDEZVOUS, WORKER, TaskSpec
from crds.torchjob.torchjob import TorchJob


def as_granted(job: TorchJob, admission: Admission) -> TorchJob:
    """Return the job with the number of workers that an admission grants. The job needs no more workers to run than it
    requests.

    Versions that wrote no number of growths did not imply a task Rendezvous. The pods of their jobs run without it.
    """
    before = job.spec.torch_task_specs
    if WORKER not in before:
        return job
    is_earlier = admission.grown is None and job.spec.has_implied_rendezvous
    tasks, members = _without_store(before) if is_earlier else before, job.spec.min_members
    worker = tasks[WORKER]
    if admission.workers is not None and admission.workers > worker.num_tasks == job.spec.members(WORKER):
        members = {**members, WORKER: worker.num_tasks}
    if admission.workers is not None and admission.workers != worker.num_tasks:
        tasks = {**tasks, WORKER: worker.model_copy(update={"num_tasks": admission.workers})}
    if tasks is before:
        return job
    return job.model_copy(update={"spec": _with_fields(job.spec, torch_task_specs=tasks, min_members=members)})


def unpaid(status: TorchJobStatus, charge: Amounts, spec: TorchJobSpec | None) -> dict[str, int]:
    """Return the part of the charge of an admitted job that is idle growth, for which its queue does not pay. `spec` is
    None if it is not valid: idle growth is then not told apart."""
    held = status.admission
    if held is None or not held.idle or spec is None:
        return {}
    share = worker_share(spec, status.measured.pods) if status.measured else worker_share(spec)
    idle = amounts.scale(share, held.idle)
    return {name: min(idle[name], amount) for name, amount in charge.items() if idle.get(name, 0) > 0}


def _without_store(tasks: Mapping[str, TaskSpec]) -> dict[str, TaskSpec]:
    """Return the tasks without the rendezvous store, for which no task waits."""
    return {name: _without_upstream(task) for name, task in tasks.items() if name != RENDEZVOUS}


def _without_upstream(task: TaskSpec) -> TaskSpec:
    others = tuple(upstream for upstream in task.depends_on if upstream.task_type != RENDEZVOUS)
    return task if len(others) == len(task.depends_on) else task.model_copy(update={"depends_on": others})


def _with_fields(spec: TorchJobSpec, **changes: object) -> TorchJobSpec:
    """Return a spec with other fields; `model_copy` would keep the cached properties of the spec."""
    fields = {name: getattr(spec, name) for name in TorchJobSpec.model_fields}
    return TorchJobSpec.model_construct(spec.model_fields_set, **{**fields, **changes})


def processes(job: TorchJob, admission: Admission, task_type: str) -> int:
    """Return the number of processes that torchrun starts in a pod of a task, as fixed at the admission of the job."""
    if admission.nproc_per_node is not None:
        return admission.nproc_per_node.get(task_type, 1)
    policy = job.spec.torch_elastic_policy
    nproc = policy.nproc_per_node if policy is not None else None
    return nproc if isinstance(nproc, int) else 1


def indexes(admission: Admission, count: int) -> tuple[int, ...]:
    """Return the indexes of the granted workers, in order; `count` is the number that the job requests.

    These are the lowest indexes if the admission names none.
    """
    if admission.indexes is None:
        return tuple(range(admission.workers or count))
    return parse_indexes(admission.indexes)


def parse_indexes(text: str) -> tuple[int, ...]:
    """Return the indexes in a text such as 0,2-4, in order."""
    return tuple(sorted({index for part in text.split(",") for index in _range(part)}))


def _range(part: str) -> range:
    first, _, last = part.partition("-")
    return range(int(first), int(last or first) + 1)


def format_indexes(granted: Iterable[int]) -> str | None:
    """Return the text of indexes, such as 0,2-4; None for the lowest ones, which an admission does not name."""
    ordered = sorted(set(granted))
    return None if not ordered or ordered[-1] == len(ordered) - 1 else name_indexes(ordered)


def name_indexes(ordered: Sequence[int]) -> str:
    """Return the text of indexes in order, such as 0,2-4."""
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in _runs(ordered))


def _runs(ordered: Sequence[int]) -> Iterator[list[int]]:
    """Yield the runs of consecutive numbers; their distance to their place in the sequence is equal."""
    for _, run in groupby(enumerate(ordered), key=lambda pair: pair[1] - pair[0]):
        yield [index for _, index in run]
