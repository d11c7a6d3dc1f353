"""The findings about jobs before they are submitted, and the messages to the user.

One rule: pure, and only a certain answer refuses a job. Whoever cannot answer is one note, and no refusal.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from coordinator.errors import CoordinatorError
from coordinator.routing import feasibility
from coordinator.routing.feasibility import Obstacle
from crds.torchjob.torchjob import TorchJob

MOST_SHOWN = 20
"""The most jobs whose findings one refusal lists."""


class NeverRuns(CoordinatorError):
    """Jobs that can never run were not submitted. The message lists the findings by field."""


class CheckUnavailable(CoordinatorError):
    """The coordinator did not answer whether jobs can ever run."""


CheckJobs = Callable[[Sequence[TorchJob]], list[list[Obstacle]]]
"""A function that returns the findings for each of several jobs. Raises CheckUnavailable."""


class CheckedJob(NamedTuple):
    """A job of a file, and its findings."""

    source: str
    name: str
    findings: Sequence[Obstacle]


def collect_warnings(checked_jobs: Iterable[CheckedJob], *, anyway: bool) -> list[str]:
    """Return the warnings about jobs before they are submitted.

    Raises NeverRuns if one of the jobs can never run, unless `anyway`.
    """
    doubtful = [job for job in checked_jobs if job.findings]
    never = [job for job in doubtful if any(finding.firm for finding in job.findings)]
    if never and not anyway:
        raise NeverRuns(_refusal(never))
    return [f"warning: {warning}" for warning in _summarize(doubtful)]


def _refusal(never: Sequence[CheckedJob]) -> str:
    lines: list[str] = []
    for job in never[:MOST_SHOWN]:
        lines.append(f'{job.source}: TorchJob "{job.name}" can never run:')
        lines += [f"  {finding.field}: {finding.message}" for finding in job.findings if finding.firm]
    if len(never) > MOST_SHOWN:
        lines.append(f"and {len(never) - MOST_SHOWN} more jobs")
    return "\n".join([*lines, "nothing was submitted; --anyway submits jobs that can never run, too"])


def _summarize(checked_jobs: Iterable[CheckedJob]) -> list[str]:
    """Return one line for each distinct finding, whatever the number of jobs that have it."""
    names: dict[str, list[str]] = {}
    for job in checked_jobs:
        for finding in job.findings:
            names.setdefault(f"{finding.field}: {finding.message}", []).append(job.name)
    return [f'TorchJob "{jobs[0]}"{_more(jobs)}: {text}' for text, jobs in names.items()]


def _more(names: Sequence[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


def pod_findings(task: str, causes: Mapping[str, str]) -> list[Obstacle]:
    """Return the findings about a task's pods that an embedded node would refuse. `causes` maps fields of the pod to
    reasons."""
    prefix = f"{feasibility.TASKS}.{task}.template."
    return [Obstacle("NotSupported", (prefix + field).rstrip("."), message) for field, message in causes.items()]
