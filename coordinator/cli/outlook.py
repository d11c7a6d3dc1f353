"""Whether jobs that are about to be submitted could ever run: asked of the coordinator, and said to their owner.

One rule: only what is known refuses. A coordinator that does not answer, or that this account may not ask, refuses no
job: that is one note. Where no coordinator answers questions at all there is nothing to say.
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
from coordinator.query.queries import NotKnown
from coordinator.routing import feasibility
from coordinator.routing.feasibility import Asked, Finding
from crds.torchjob.torchjob import TorchJob
from kube import errors

AGAIN_SECONDS = 0.5
"""After so long the coordinator is asked again before a job is refused: it may not have seen yet what was just made."""
EARLIER = "the coordinator is of an earlier version, which does not check jobs"
MOST_SHOWN = 20
"""Jobs of one submission of which is said why they can never run."""


class NeverRuns(CoordinatorError):
    """Jobs that could never run were not submitted; says why, by field."""


class Unknown(CoordinatorError):
    """Nobody could say whether jobs could ever run."""


Outlook = Callable[[Sequence[TorchJob]], list[list[Finding]]]
"""What is found about each of some jobs. Unknown."""


class Judged(NamedTuple):
    """A job of a file, and what was found about it."""

    source: str
    name: str
    findings: Sequence[Finding]


@dataclass(frozen=True, slots=True)
class Asking:
    """Asks the coordinator of an invocation; about jobs that ask for the same once."""

    session: Session
    pause: Callable[[float], object] = time.sleep

    def __call__(self, jobs: Sequence[TorchJob]) -> list[list[Finding]]:
        """See Outlook."""
        questions = [asked(job).model_dump_json() for job in jobs]
        try:
            fetch = api_client.coordinator(self.session)
            found = _answers(fetch, questions)
            doubtful = [question for question, findings in found.items() if any(each.firm for each in findings)]
            if doubtful:
                self.pause(AGAIN_SECONDS)
                found |= _answers(fetch, doubtful)
        except api_client.NoneKnown:
            return [[] for _ in jobs]  # no coordinator here answers questions
        except NotKnown as error:
            raise Unknown(EARLIER) from error
        except (CoordinatorError, errors.ClusterError, ValueError) as error:
            raise Unknown(str(error)) from error
        return [found[question] for question in questions]


def _answers(fetch: Callable[[str], Any], questions: Iterable[str]) -> dict[str, list[Finding]]:
    return {
        question: feasibility.parse(fetch(f"/v1/check?job={quote(question, safe='')}"))
        for question in dict.fromkeys(questions)
    }


def asked(job: TorchJob) -> Asked:
    """What the coordinator needs to know of a job."""
    return Asked(
        namespace=job.metadata.namespace,
        queue=job.queue,
        priority_class=views.priority_class(job),
        claims=job.spec.claims,
        charge=dict(job.charge),
        pods={task: dict(share) for task, share in job.shares.items()},
    )


def weigh(judged: Iterable[Judged], *, anyway: bool) -> list[str]:
    """What to warn of before the jobs are submitted. NeverRuns if one of them can never run, unless `anyway`."""
    there = [each for each in judged if each.findings]
    never = [each for each in there if any(finding.firm for finding in each.findings)]
    if never and not anyway:
        raise NeverRuns(_refusal(never))
    return [f"warning: {warning}" for warning in _together(there)]


def _refusal(never: Sequence[Judged]) -> str:
    lines: list[str] = []
    for job in never[:MOST_SHOWN]:
        lines.append(f'{job.source}: TorchJob "{job.name}" can never run:')
        lines += [f"  {each.field}: {each.message}" for each in job.findings if each.firm]
    if len(never) > MOST_SHOWN:
        lines.append(f"and {len(never) - MOST_SHOWN} more jobs")
    return "\n".join([*lines, "nothing was submitted; --anyway submits such jobs all the same"])


def _together(there: Iterable[Judged]) -> list[str]:
    """One line for each thing that is found, however many jobs it is found about."""
    names: dict[str, list[str]] = {}
    for job in there:
        for each in job.findings:
            names.setdefault(f"{each.field}: {each.message}", []).append(job.name)
    return [f'TorchJob "{found[0]}"{_more(found)}: {said}' for said, found in names.items()]


def _more(names: Sequence[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


def of_pods(task: str, causes: Mapping[str, str]) -> list[Finding]:
    """What an embedded node would refuse of a task's pods, by field of the pod."""
    prefix = f"{feasibility.TASKS}.{task}.template."
    return [Finding("NotSupported", (prefix + field).rstrip("."), said) for field, said in causes.items()]
