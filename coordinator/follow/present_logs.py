"""The present output of a job: the pod, the run of its container, and the lines.

One rule: output of a pod that cannot be read causes a note if other pods were selected, too, else an error.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from coordinator.errors import CoordinatorError
from coordinator.follow.log_lines import LineStates, LogLine, LogSelection
from coordinator.follow.log_source import LogSource, NotKept
from coordinator.follow.pod_runs import PodRuns
from coordinator.follow.readable_lines import CodePaths
from crds.torchjob import grant
from crds.torchjob.tasks import WORKER
from crds.torchjob.torchjob import TorchJob
from kube import errors


class NoOutput(CoordinatorError):
    """A job has no output to read, or never will have. The message says why."""


class NoSuchPod(CoordinatorError):
    """A job has no pod of that task and index. The message says which members it has."""


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
    place: int = 0
    """Its number among the runs of the member, over all of its pods, from 1; 0 for an init container."""


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
    """Return the runs to read, in order, by the short name of the member."""
    found: dict[str, list[PodRun]] = {}
    for pod in pods:
        runs = found.setdefault(pod.label, [])
        *before, last = pod.selected(selection.container)
        runs += [PodRun(pod, each, pod.of(each).last) for each in before]
        begun = sum(1 for run in runs if run.place)
        runs += [PodRun(pod, last, number, begun + number + 1) for number in range(pod.of(last).last + 1)]
    chosen = {label: _choose(runs, selection) for label, runs in found.items()}
    in_order = sorted(
        (runs for runs in chosen.values() if runs), key=lambda runs: (runs[0].pod.task, runs[0].pod.index)
    )
    return {runs[0].pod.label: runs for runs in in_order}


def _choose(runs: list[PodRun], selection: LogSelection) -> list[PodRun]:
    """Return all runs, with the init containers that failed, or the selected runs."""
    main = [run for run in runs if run.place]
    if selection.previous:
        return main[-2:-1]
    if selection.run is not None:
        return [run for run in main if run.place == selection.run]
    if selection.tail is not None:
        return [run for run in runs if run.pod is runs[-1].pod and run.number == run.pod.of(run.container).last]
    return runs


def read(
    source: LogSource, chosen: dict[str, list[PodRun]], selection: LogSelection, stop: threading.Event
) -> Iterator[LogLine]:
    """Yield the lines of some runs, member by member, with a note between the runs of one member. Raise NoOutput if the
    only selected run cannot be read."""
    runs = [run for of_member in chosen.values() for run in of_member]
    paths = CodePaths()
    several = {label for label, of_member in chosen.items() if len(of_member) > 1}
    for pod, container, number, place in runs:
        if place and pod.label in several:
            yield LogLine("", f"{pod.label}: run {place}, in pod {pod.name}")
        try:
            lines = source.open(pod, container, number, follow=False, tail=selection.tail)
        except (NotKept, errors.NotFound, errors.Invalid) as error:
            if len(runs) == 1:
                raise NoOutput(f"{pod.name}: {error}") from error
            yield LogLine("", f"{pod.label}: {error}")
            continue
        try:
            states = LineStates(selection.states)
            for piece in lines:
                found = states.collapse(line.of_pod(pod.label) for line in piece)
                yield from found if selection.states == "all" else paths.shorten(found)
                if stop.is_set():
                    return
            if (rest := lines.rest()) is not None:
                yield from states.collapse([rest.of_pod(pod.label)])
            yield from states.rest()
        finally:
            lines.close()
