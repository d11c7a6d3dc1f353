"""Stages: tasks that may exist at once, because the same successes lie before them.

One rule: pure, over the dependencies alone.

A task waits for S: the upstreams that it wants to have succeeded, and whatever its upstreams wait for. Tasks with the
same S are one stage, which begins when all of S has succeeded; a job without such dependencies is one stage.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from crds.torchjob.tasks import TaskSpec

Tasks = Mapping[str, TaskSpec]


@dataclass(frozen=True, slots=True)
class Stage:
    """Some tasks of a job."""

    index: int
    """0 for the one that begins with the job; whoever is waited for comes before who waits."""
    awaits: frozenset[str]
    """The tasks that have succeeded before it begins; none for the first stage alone."""
    tasks: tuple[str, ...]
    """In the order of the job's tasks."""

    def overlaps(self, other: "Stage") -> bool:
        """Whether pods of both can exist at once: unless one waits for the success of all of the other."""
        return not (self.awaits.issuperset(other.tasks) or other.awaits.issuperset(self.tasks))


def of(tasks: Tasks) -> tuple[Stage, ...]:
    """The stages of tasks that stand in their order."""
    awaits = _awaits(tasks)
    found: dict[frozenset[str], list[str]] = {}
    for task_type in tasks:
        found.setdefault(awaits[task_type], []).append(task_type)
    # Who waits for a task waits for more than that task does.
    ordered = sorted(found.items(), key=lambda item: len(item[0]))
    return tuple(Stage(index, before, tuple(names)) for index, (before, names) in enumerate(ordered))


def _awaits(tasks: Tasks) -> dict[str, frozenset[str]]:
    """S of every task. Each round looks one dependency further, so that there are as many rounds as tasks at most."""
    found: dict[str, frozenset[str]] = dict.fromkeys(tasks, frozenset())
    for _ in tasks:
        before, found = found, {name: _near(task, found) for name, task in tasks.items()}
        if found == before:
            break
    return found


def _near(task: TaskSpec, known: Mapping[str, frozenset[str]]) -> frozenset[str]:
    direct = frozenset(each.task_type for each in task.depends_on if each.phase == "Succeeded")
    return direct.union(*(known.get(each.task_type, frozenset()) for each in task.depends_on))
