"""Whether jobs could ever run: the question to a coordinator.

One rule: if the cluster names no coordinator at all, nothing is found. If a coordinator does not answer, or this
account has no permission to query it, the check is not available, and says why.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from coordinator.cache import gang_shapes, pod_grace, views
from coordinator.errors import CoordinatorError
from coordinator.query.questions import UnknownObject
from coordinator.query.remote_queries import Fetch, NoCoordinatorKnown
from coordinator.routing import feasibility
from coordinator.routing.feasibility import JobRequest, Obstacle
from coordinator.runs.submission_findings import CheckUnavailable
from crds.torchjob.demand import FirstPods
from crds.torchjob.torchjob import TorchJob
from kube import errors

AGAIN_SECONDS = 0.5
"""The pause, in seconds, before the coordinator is asked again about a job that it would refuse.

The coordinator may not have seen a queue or another object yet that was created a moment ago."""
MOST_PLACE_TEXT = 2_000
"""The most characters of place conditions that a question has. A coordinator reads 16 KiB of a request's head."""
EARLIER = "the coordinator runs an earlier version of torchq, which does not check jobs"


def question(job: TorchJob) -> JobRequest:
    """Return the part of a job that the coordinator needs for its answer."""
    topology = job.spec.scheduling_policy.topology
    return JobRequest(
        namespace=job.metadata.namespace,
        queue=job.queue,
        priority_class=views.priority_class(job),
        claims=job.spec.claims,
        gang_queue=job.spec.scheduling_policy.gang_queue,
        charge=dict(job.least_charge),
        largest=dict(job.charge) if job.charge != job.least_charge else {},
        pods={task: dict(requests) for task, requests in job.shares.items()},
        save_seconds=job.spec.scheduling_policy.checkpoint_seconds,
        grace_seconds=pod_grace.longest(job),
        ports=tuple(sorted(job.spec.chosen_ports)),
        starts=_short(job.first_pods),
        later_starts=tuple(map(_short, gang_shapes.later_pods(job))) if topology.required else (),
        required=topology.required,
        preferred=topology.preferred,
    )


def _short(starts: tuple[FirstPods, ...]) -> tuple[FirstPods, ...]:
    """Return the pods that start together; none if their place conditions are too long for a URL."""
    return starts if sum(len(each.place) for each in starts) <= MOST_PLACE_TEXT else ()


def whole_question(job: TorchJob) -> JobRequest:
    """Return the question whether a job could run with all of its workers."""
    return question(job).model_copy(update={"charge": dict(job.charge), "largest": {}})


@dataclass(frozen=True, slots=True)
class FeasibilityCheck:
    """Asks the coordinator whether jobs can ever run. Jobs with the same demands are asked about once."""

    coordinator: Callable[[], Fetch]
    """Returns access to a coordinator. Raises NoCoordinatorKnown."""
    pause: Callable[[float], object] = time.sleep
    ask: Callable[[TorchJob], JobRequest] = question
    """A function that returns what is asked about a job."""

    def __call__(self, jobs: Sequence[TorchJob]) -> list[list[Obstacle]]:
        """See CheckJobs."""
        questions = [*map(self.ask, jobs)]
        try:
            fetch = self.coordinator()
            answers = _fetch_answers(fetch, questions)
            refused = [each for each in questions if any(finding.firm for finding in answers[each.model_dump_json()])]
            if refused:
                self.pause(AGAIN_SECONDS)
                answers |= _fetch_answers(fetch, refused)
        except NoCoordinatorKnown:
            return [[] for _ in jobs]  # no coordinator answers queries here
        except UnknownObject as error:
            raise CheckUnavailable(EARLIER) from error
        except (CoordinatorError, errors.ClusterError, ValueError) as error:
            raise CheckUnavailable(str(error)) from error
        return [answers[each.model_dump_json()] for each in questions]


def _fetch_answers(fetch: Fetch, questions: Iterable[JobRequest]) -> dict[str, list[Obstacle]]:
    """Return the answers by the text of the question."""
    namespaces = {each.model_dump_json(): each.namespace for each in questions}
    return {
        text: feasibility.parse(fetch(f"/v1/check?job={quote(text, safe='')}", namespace))
        for text, namespace in namespaces.items()
    }
