"""Stages: groups of tasks that wait for the success of the same tasks, so that their pods may exist at once.

One rule: pure; the stages depend only on the dependencies of the tasks.

A task waits for a set S of tasks: the upstreams with phase Succeeded in its dependencies, and the sets of all its
upstreams. Tasks with the same S are one stage. The stage begins when all tasks in S have succeeded. A job without such
dependencies is one stage.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from crds.torchjob.tasks import TaskSpec

Tasks = Mapping[str, TaskSpec]


@dataclass(frozen=True, slots=True)
class Stage:
    """A group of tasks of a job that may exist at once."""

    index: int
    """The number of the stage: 0 begins with the job, and a stage has a higher index than those it waits for."""
    awaits: frozenset[str]
    """The tasks that succeed before this stage begins; only the first stage has none."""
    tasks: tuple[str, ...]
    """The task types, in the order of the job's tasks."""

    def overlaps(self, other: "Stage") -> bool:
        """Return whether pods of both stages can exist at once: neither waits for the success of the whole other."""
        return not (self.awaits.issuperset(other.tasks) or other.awaits.issuperset(self.tasks))


def group_tasks(tasks: Tasks) -> tuple[Stage, ...]:
    """Return the stages of tasks that are in the job's order."""
    awaits = _awaits(tasks)
    names_by_awaited: dict[frozenset[str], list[str]] = {}
    for task_type in tasks:
        names_by_awaited.setdefault(awaits[task_type], []).append(task_type)
    # A task that waits for another task waits for more tasks than that other task, so the size gives the order.
    ordered = sorted(names_by_awaited.items(), key=lambda item: len(item[0]))
    return tuple(Stage(index, before, tuple(names)) for index, (before, names) in enumerate(ordered))


def _awaits(tasks: Tasks) -> dict[str, frozenset[str]]:
    """Return the set S of every task.

    Each round follows the dependencies one step further, so the number of rounds is at most the number of tasks.
    """
    awaits: dict[str, frozenset[str]] = dict.fromkeys(tasks, frozenset())
    for _ in tasks:
        before, awaits = awaits, {name: _awaits_of_task(task, awaits) for name, task in tasks.items()}
        if awaits == before:
            break
    return awaits


def _awaits_of_task(task: TaskSpec, awaits: Mapping[str, frozenset[str]]) -> frozenset[str]:
    direct = frozenset(upstream.task_type for upstream in task.depends_on if upstream.phase == "Succeeded")
    return direct.union(*(awaits.get(upstream.task_type, frozenset()) for upstream in task.depends_on))
