"""The findings about jobs before they are submitted or changed, and the messages to the user.

One rule: only a certain answer refuses a job. A coordinator that cannot answer causes one note, and no refusal.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from coordinator.errors import CoordinatorError
from coordinator.routing import feasibility
from coordinator.routing.feasibility import Obstacle
from crds.torchjob.torchjob import TorchJob

MOST_SHOWN = 20
"""The most jobs whose findings one refusal lists."""


class NeverRuns(CoordinatorError):
    """Jobs that can never run were not submitted, or not changed. The message lists the findings by field."""


class CheckUnavailable(CoordinatorError):
    """The coordinator did not answer whether jobs can ever run."""


CheckJobs = Callable[[Sequence[TorchJob]], list[list[Obstacle]]]
"""A function that returns the findings for each of several jobs. Raises CheckUnavailable."""


class CheckedJob(NamedTuple):
    """A job and its findings."""

    source: str
    """The file of a new job, or the change of an existing one."""
    name: str
    findings: Sequence[Obstacle]


Verb = tuple[str, str]
"""What a command does with the jobs, for messages: the present and the past of the verb."""
SUBMIT: Verb = ("submits", "submitted")


@dataclass(frozen=True, slots=True)
class Vetting:
    """How a command vets jobs before it makes or changes them."""

    check_jobs: CheckJobs = lambda jobs: [[] for _ in jobs]
    """What finds the jobs that could never run."""
    anyway: bool = False
    """Whether such jobs are warned of only, and not refused."""
    tell: Callable[[str], object] = lambda _: None
    """What gets warnings and notes for the user."""

    def ask(self, jobs: Sequence[TorchJob]) -> list[list[Obstacle]]:
        """Return the findings for each job; none, with a note, if no coordinator can answer."""
        try:
            return self.check_jobs(jobs)
        except CheckUnavailable as error:
            self.tell(f"note: it was not checked whether the jobs can ever run: {error}")
            return [[] for _ in jobs]

    def warn(self, checked_jobs: Iterable[CheckedJob], verb: Verb = SUBMIT) -> None:
        """Tell warnings about jobs before they are made or changed.

        Raises NeverRuns if one of the jobs can never run, unless `anyway`.
        """
        doubtful = [job for job in checked_jobs if job.findings]
        never = [job for job in doubtful if any(finding.firm for finding in job.findings)]
        if never and not self.anyway:
            raise NeverRuns(_refusal(never, verb))
        for warning in _summarize(doubtful):
            self.tell(f"warning: {warning}")


UNVETTED = Vetting()
"""No job is refused, and nobody is told."""


def _refusal(never: Sequence[CheckedJob], verb: Verb) -> str:
    (present, past), lines = verb, list[str]()
    for job in never[:MOST_SHOWN]:
        lines.append(f'{job.source}: TorchJob "{job.name}" can never run:')
        lines += [f"  {finding.field}: {finding.message}" for finding in job.findings if finding.firm]
    if len(never) > MOST_SHOWN:
        lines.append(f"and {len(never) - MOST_SHOWN} more jobs")
    return "\n".join([*lines, f"nothing was {past}; --anyway {present} jobs that can never run, too"])


def _summarize(checked_jobs: Iterable[CheckedJob]) -> list[str]:
    """Return one line for each distinct finding, whatever the number of jobs with this finding."""
    names: dict[str, list[str]] = {}
    for job in checked_jobs:
        for finding in job.findings:
            names.setdefault(f"{finding.field}: {finding.message}", []).append(job.name)
    return [
        f'TorchJob "{jobs[0]}"{f" and {len(jobs) - 1} more" if jobs[1:] else ""}: {text}'
        for text, jobs in names.items()
    ]


def pod_findings(task: str, causes: Mapping[str, str]) -> list[Obstacle]:
    """Return the findings about a task's pods that an embedded node would refuse. `causes` maps fields of the pod to
    reasons."""
    prefix = f"{feasibility.TASKS}.{task}.template."
    return [Obstacle("NotSupported", (prefix + field).rstrip("."), message) for field, message in causes.items()]


def overridden(job: TorchJob) -> list[Obstacle]:
    """Return the findings about fields of pod templates that a field of the task overrides."""
    tasks = job.spec.torch_task_specs
    given = {name: task.template["spec"].get("restartPolicy") for name, task in tasks.items()}
    return [
        Obstacle(
            "Overridden",
            f"{feasibility.TASKS}.{name}.template.spec.restartPolicy",
            f"{given[name]} has no effect: the restartPolicy of task {name} is {task.restart_policy}",
            firm=False,
        )
        for name, task in tasks.items()
        if given[name] not in (None, task.restart_policy)
    ]
