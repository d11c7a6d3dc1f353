"""Whether jobs could ever run: the question of the commands that submit or change jobs to the coordinator.

One rule: if the coordinator does not answer, or this account has no permission to query it, the command continues and
prints one note. If the cluster names no coordinator at all, there is no note. `coordinator.runs.submission_findings`
has the messages.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote

import click

from coordinator.cache import gang_shapes, pod_grace, views
from coordinator.cli import api_client
from coordinator.cli.api_client import Fetch
from coordinator.cli.session import Session
from coordinator.errors import CoordinatorError
from coordinator.query.questions import UnknownObject
from coordinator.routing import feasibility
from coordinator.routing.feasibility import JobRequest, Obstacle
from coordinator.runs.submission_findings import CheckedJob, CheckUnavailable, Verb, Vetting
from coordinator.wording import job_state
from crds.errors import InvalidObject
from crds.torchjob import torchjob
from crds.torchjob.demand import FirstPods
from crds.torchjob.torchjob import TorchJob
from kube import errors
from kube.api import Manifest

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

    session: Session
    pause: Callable[[float], object] = time.sleep
    ask: Callable[[TorchJob], JobRequest] = question
    """A function that returns what is asked about a job."""

    def __call__(self, jobs: Sequence[TorchJob]) -> list[list[Obstacle]]:
        """See CheckJobs."""
        questions = [*map(self.ask, jobs)]
        try:
            fetch = api_client.coordinator(self.session)
            answers = _fetch_answers(fetch, questions)
            refused = [each for each in questions if any(finding.firm for finding in answers[each.model_dump_json()])]
            if refused:
                self.pause(AGAIN_SECONDS)
                answers |= _fetch_answers(fetch, refused)
        except api_client.NoCoordinatorKnown:
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


def check_change(session: Session, changed: Iterable[Manifest], change: str, verb: Verb, *, anyway: bool) -> None:
    """Ask whether jobs could run as they would be after a change, and print warnings. The check comes before the first
    step of a command, for all of its jobs: no job is changed if one of the jobs could never run after the change,
    unless the user wants that.

    `change` and `verb` name the change in messages. Raises `findings.NeverRuns` for jobs that never could, unless
    `anyway`, and Invalid for jobs that the change would make invalid.
    """
    jobs = [_parse(item, change) for item in changed]
    vetting = Vetting(lambda jobs: list(_ask(session, jobs)), anyway, partial(click.echo, err=True))
    found = zip(jobs, vetting.ask(jobs), strict=True)
    vetting.warn((CheckedJob(change, f"{job.key.namespace}/{job.key.name}", each) for job, each in found), verb)


def _parse(item: Manifest, change: str) -> TorchJob:
    try:
        return torchjob.parse(item)
    except InvalidObject as error:
        causes = tuple(errors.FieldCause(problem.field, problem.message) for problem in error.problems)
        raise errors.Invalid(f"{change}: TorchJob {job_state.display_name(item)} would be invalid", causes) from error


def _ask(session: Session, jobs: Sequence[TorchJob]) -> Iterator[list[Obstacle]]:
    """Yield the findings that keep each job from running; for an elastic job also those that keep only some of its
    workers from running.
    """
    elastic = [job for job in jobs if job.charge != job.least_charge]
    findings = FeasibilityCheck(session, ask=whole_question)(elastic)
    whole = {job.key: found for job, found in zip(elastic, findings, strict=True)}
    for job, found in zip(jobs, FeasibilityCheck(session)(jobs), strict=True):
        known = {(each.code, each.field) for each in found}
        more = (each for each in whole.get(job.key, ()) if (each.code, each.field) not in known)
        yield [*found, *(each._replace(firm=False) for each in more)]
