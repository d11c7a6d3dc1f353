"""Whether jobs could ever run: the question of `torchq submit` to the coordinator, and the messages to the user.

One rule: only a certain answer refuses a job. If the coordinator does not answer, or this account has no permission to
query it, the jobs are submitted with one note. If the cluster names no coordinator at all, there is no note.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote

from coordinator.cache import views
from coordinator.cli import api_client
from coordinator.cli.session import Session
from coordinator.errors import CoordinatorError
from coordinator.query.queries import UnknownObject
from coordinator.routing import feasibility
from coordinator.routing.feasibility import JobRequest, Obstacle
from crds.torchjob.torchjob import TorchJob
from kube import errors

AGAIN_SECONDS = 0.5
"""The pause, in seconds, before the coordinator is asked again about a job that it would refuse.

The coordinator may not have seen a queue or another object yet that was created a moment ago."""
EARLIER = "the coordinator runs an earlier version of torchq, which does not check jobs"
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


@dataclass(frozen=True, slots=True)
class FeasibilityCheck:
    """Asks the coordinator whether jobs can ever run. Jobs with the same demands are asked about once."""

    session: Session
    pause: Callable[[float], object] = time.sleep

    def __call__(self, jobs: Sequence[TorchJob]) -> list[list[Obstacle]]:
        """See CheckJobs."""
        questions = [question(job).model_dump_json() for job in jobs]
        try:
            fetch = api_client.coordinator(self.session)
            answers = _fetch_answers(fetch, questions)
            refused = [text for text, findings in answers.items() if any(finding.firm for finding in findings)]
            if refused:
                self.pause(AGAIN_SECONDS)
                answers |= _fetch_answers(fetch, refused)
        except api_client.NoCoordinatorKnown:
            return [[] for _ in jobs]  # no coordinator answers queries here
        except UnknownObject as error:
            raise CheckUnavailable(EARLIER) from error
        except (CoordinatorError, errors.ClusterError, ValueError) as error:
            raise CheckUnavailable(str(error)) from error
        return [answers[text] for text in questions]


def _fetch_answers(fetch: Callable[[str], Any], questions: Iterable[str]) -> dict[str, list[Obstacle]]:
    return {
        text: feasibility.parse(fetch(f"/v1/check?job={quote(text, safe='')}")) for text in dict.fromkeys(questions)
    }


def question(job: TorchJob) -> JobRequest:
    """Return the part of a job that the coordinator needs for its answer."""
    return JobRequest(
        namespace=job.metadata.namespace,
        queue=job.queue,
        priority_class=views.priority_class(job),
        claims=job.spec.claims,
        charge=dict(job.least_charge),
        pods={task: dict(requests) for task, requests in job.shares.items()},
    )


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
