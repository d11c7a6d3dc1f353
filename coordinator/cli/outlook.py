"""Whether jobs could ever run as they would be after a change: the check of the commands that change jobs.

One rule: if the coordinator does not answer, or this account has no permission to query it, the command continues and
prints one note. `coordinator.runs.submission_findings` has the messages.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import click

from coordinator.cli import api_client
from coordinator.cli.session import Session
from coordinator.routing.feasibility import Obstacle
from coordinator.runs import feasibility_check
from coordinator.runs.submission_findings import CheckedJob, Verb, Vetting
from coordinator.wording import job_state
from crds.errors import InvalidObject
from crds.torchjob import torchjob
from crds.torchjob.torchjob import TorchJob
from kube import errors
from kube.api import Manifest


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
    coordinator = partial(api_client.coordinator, session)
    elastic = [job for job in jobs if job.charge != job.least_charge]
    findings = feasibility_check.FeasibilityCheck(coordinator, ask=feasibility_check.whole_question)(elastic)
    whole = {job.key: found for job, found in zip(elastic, findings, strict=True)}
    for job, found in zip(jobs, feasibility_check.FeasibilityCheck(coordinator)(jobs), strict=True):
        known = {(each.code, each.field) for each in found}
        more = (each for each in whole.get(job.key, ()) if (each.code, each.field) not in known)
        yield [*found, *(each._replace(firm=False) for each in more)]
