"""The jobs that a command is about: several names, or a selector.

One rule: a job that cannot be found or changed does not keep the command from the other jobs. The error of a single job
is raised as it is; errors of several jobs are printed one by one, and the exit code says that there were errors.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import click

from coordinator.cli import job_ref, lazy_group, output
from coordinator.cli.jobs import completion
from coordinator.cli.lazy_group import USER_ERRORS
from coordinator.cli.session import Session, format_error
from coordinator.wording import job_state
from crds.api_resources import TORCHJOBS
from kube import errors
from kube.api import Manifest

CHECK = "coordinator.cli.outlook:check_change"
anyway_option = click.option(
    "--anyway", is_flag=True, help="even if a job could never run then with the present queues, quotas and nodes"
)


@dataclass(frozen=True, slots=True)
class JobChoice:
    """The jobs that a user names, or selects by their labels."""

    names: tuple[str, ...]
    selector: str

    def check(self) -> None:
        """Raise UsageError unless there are either names or a selector."""
        if bool(self.names) == bool(self.selector):
            raise click.UsageError("name the jobs, or select them with -l LABELS")

    def select(self, session: Session) -> list[Manifest]:
        """Return the jobs of the namespace with the labels of the selector; print a note if there are no such jobs."""
        items = session.cluster.list(TORCHJOBS, session.namespace, label_selector=self.selector).items
        if not items:
            click.echo(f"note: no job in namespace {session.namespace} has the labels {self.selector}", err=True)
        return items

    def all(self, session: Session) -> list[Manifest]:
        """Return all of the jobs. Raise the first error, so that nothing is done half."""
        self.check()
        names = dict.fromkeys(self.names)
        return self.select(session) if self.selector else [_find(session, name) for name in names]

    def for_each(
        self,
        session: Session,
        act: Callable[[Manifest], object],
        *,
        prepare: Callable[[list[Manifest]], Iterable[Manifest]] = list,
    ) -> None:
        """Call `act` with each of the jobs.

        `prepare` gets all of the jobs before the first call. `prepare` returns the jobs in the order of the calls, or
        raises an error that prevents all calls.

        Raise the error of a single named job; after errors of several jobs, which are printed, raise SystemExit with
        code 1.
        """
        self.check()
        if len(self.names) == 1:
            for item in prepare(self.all(session)):
                act(item)
            return
        found = self.select(session) if self.selector else []
        failed = _attempt(lambda name: found.append(_find(session, name)), dict.fromkeys(self.names))
        failed += _attempt(act, prepare(found))
        if failed:
            raise SystemExit(1)


jobs_argument = output.as_value(
    "jobs",
    JobChoice,
    click.argument("names", nargs=-1, metavar="JOB...", shell_complete=completion.jobs),
    click.option("-l", "--selector", default="", metavar="LABELS", help="jobs with these labels, as in team=a"),
)
"""Adds the parameters of every command about several jobs, which gets them as `jobs`."""


def _find(session: Session, name: str) -> Manifest:
    """Read a job. The error about a job that is gone says where its history is."""
    try:
        return job_ref.find(session, name)
    except errors.NotFound as error:
        raise errors.NotFound(f"{error}; if it is gone: torchq history {name}") from error


def _attempt(act: Callable[[Any], object], values: Iterable[Any]) -> int:
    """Call `act` with each value, print errors, and return their number."""
    failed = 0
    for value in values:
        try:
            act(value)
        except USER_ERRORS as error:
            failed += 1
            click.echo(f"Error: {format_error(error)}", err=True)
    return failed


def check_change(
    session: Session, changed: list[Manifest], change: str, verb: tuple[str, str], *, anyway: bool
) -> None:
    """Raise NeverRuns if jobs could never run as they would be after a change (`coordinator.cli.outlook`)."""
    if changed:  # most commands that may change jobs change none, and need not import how they are judged
        lazy_group.find(CHECK)(session, changed, change, verb, anyway=anyway)


def idle_first(items: list[Manifest]) -> list[Manifest]:
    """Return jobs in the order in which a command ends them: jobs without room before jobs with room, newest first.

    The room that is freed is given to the first waiting job, so none of the ended jobs may still wait at that time.
    """
    newest_first = sorted(items, key=job_state.submission_order, reverse=True)
    return sorted(newest_first, key=job_state.is_admitted)
