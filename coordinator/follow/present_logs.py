"""The output that a job has now: which pod and which run of it, and its lines.

One rule: what cannot be read of one pod is a note, if other pods were selected, too; else it is an error.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from coordinator.errors import CoordinatorError
from coordinator.follow.log_lines import LogLine, LogSelection
from coordinator.follow.log_source import LogSource, NotKept
from coordinator.follow.pod_runs import PodRuns
from crds.torchjob import grant
from crds.torchjob.tasks import WORKER
from crds.torchjob.torchjob import TorchJob
from kube import errors


class NoOutput(CoordinatorError):
    """A job has no output to read, or never will have. The message says why."""


class NoSuchPod(CoordinatorError):
    """A job has no pod of that task and index. The message says which ones it has."""


class JobMember(NamedTuple):
    """A member of a job: the pods of one task with one index."""

    task: str
    """The task type in lower case."""
    number: int
    """The index."""
    pod: str
    """The name of its pods."""


class PodRun(NamedTuple):
    """One run of a container."""

    pod: PodRuns
    container: str
    number: int


def find_member(job: TorchJob, selection: LogSelection) -> JobMember:
    """Return the member that is selected. Raise NoSuchPod."""
    types = {task_type.lower(): task_type for task_type in job.spec.tasks}
    task, index = selection.task.lower() or _first_task(job), selection.index
    if task not in types or index not in _indexes(job, types[task]):
        sizes = ", ".join(f"{task_type} 0..{spec.num_tasks - 1}" for task_type, spec in job.spec.tasks.items())
        raise NoSuchPod(f"job {job.key.name} has no {selection.task or task} {index}; it has {sizes}")
    return JobMember(task, index, job.pod_name(types[task], index))


def _first_task(job: TorchJob) -> str:
    """Return the task of rank 0, in lower case; a task without ranks only if there is no other."""
    ranked = (name for name, task in job.spec.tasks.items() if not task.auxiliary)
    return next(ranked, next(iter(job.spec.tasks))).lower()


def _indexes(job: TorchJob, task_type: str) -> frozenset[int]:
    """Return the indexes of the pods of a task: those that are requested, and those that were granted."""
    count = job.spec.tasks[task_type].num_tasks
    is_granted = task_type == WORKER and job.admission is not None
    granted = grant.indexes(job.admission, count) if is_granted and job.admission is not None else ()
    return frozenset({*range(count), *granted})


def select(pods: Sequence[PodRuns], selection: LogSelection) -> dict[str, list[PodRun]]:
    """Return the runs to read, by the short name of the member: of each member the last run, or the one before."""
    found: dict[str, list[PodRun]] = {}
    for pod in pods:
        for container in pod.selected(selection.container):
            runs = [PodRun(pod, container, number) for number in range(pod.of(container).last + 1)]
            found.setdefault(pod.label, []).extend(runs)
    chosen = {label: _choose(runs, previous=selection.previous) for label, runs in found.items()}
    return {label: runs for label, runs in sorted(chosen.items(), key=_order) if runs}


def _order(slot: tuple[str, list[PodRun]]) -> tuple[str, int]:
    task, _, index = slot[0].rpartition("-")
    return task, int(index)


def _choose(runs: list[PodRun], *, previous: bool) -> list[PodRun]:
    """Return the last run with its pod's init containers that failed, or the run before it."""
    if previous:
        before = [run for run in runs if run.container == runs[-1].container]
        return before[-2:-1]
    return [run for run in runs if run.pod is runs[-1].pod and run.number == run.pod.of(run.container).last]


def read(
    source: LogSource, chosen: dict[str, list[PodRun]], selection: LogSelection, stop: threading.Event
) -> Iterator[LogLine]:
    """Yield the lines of some runs, member by member. Raise NoOutput if the only one cannot be read."""
    runs = [run for of_member in chosen.values() for run in of_member]
    for pod, container, number in runs:
        try:
            lines = source.open(pod, container, number, follow=False, tail=selection.tail)
        except (NotKept, errors.NotFound, errors.Invalid) as error:
            if len(runs) == 1:
                raise NoOutput(f"{pod.name}: {error}") from error
            yield LogLine("", f"{pod.label}: {error}")
            continue
        try:
            for several in lines:
                for line in several:
                    yield LogLine(pod.label, line.text, line.time)
                if stop.is_set():
                    return
            rest = lines.rest()
            if rest is not None:
                yield LogLine(pod.label, rest.text, rest.time)
        finally:
            lines.close()
