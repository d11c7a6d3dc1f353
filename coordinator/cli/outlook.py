"""Whether jobs could ever run: the question of `torchq submit` and `torchq run` to the coordinator.

One rule: if the coordinator does not answer, or this account has no permission to query it, the jobs are submitted with
one note. If the cluster names no coordinator at all, there is no note. `coordinator.runs.findings` has the messages.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from coordinator.cache import views
from coordinator.cli import api_client
from coordinator.cli.session import Session
from coordinator.errors import CoordinatorError
from coordinator.query.queries import UnknownObject
from coordinator.routing import feasibility
from coordinator.routing.feasibility import JobRequest, Obstacle
from coordinator.runs.findings import CheckUnavailable
from crds.torchjob.torchjob import TorchJob
from kube import errors

AGAIN_SECONDS = 0.5
"""The pause, in seconds, before the coordinator is asked again about a job that it would refuse.

The coordinator may not have seen a queue or another object yet that was created a moment ago."""
EARLIER = "the coordinator runs an earlier version of torchq, which does not check jobs"


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
        largest=dict(job.charge) if job.charge != job.least_charge else {},
        pods={task: dict(requests) for task, requests in job.shares.items()},
    )
