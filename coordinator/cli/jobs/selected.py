"""The jobs that a command is about: several names, or a selector.

One rule: a job that cannot be found or changed does not keep the command from the others. The error of a single job is
raised as it is; errors of several jobs are printed one by one, and the exit code says that there were some.
"""

from collections.abc import Callable, Iterator
from typing import Any

import click

from coordinator.cli import job_ref
from coordinator.cli.jobs import completion
from coordinator.cli.session import USER_ERRORS, Session, format_error
from crds.api_resources import TORCHJOBS
from kube.api import Manifest

_OPTIONS = (
    click.argument("names", nargs=-1, metavar="JOB...", shell_complete=completion.jobs),
    click.option("-l", "--selector", default="", metavar="LABELS", help="jobs with these labels, as in team=a"),
)


def jobs_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the parameters of every command about several jobs: `names` and `selector`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def for_each(session: Session, names: tuple[str, ...], selector: str, act: Callable[[Manifest], object]) -> None:
    """Call `act` with each job that is named or selected.

    Raise UsageError unless there are names or a selector. Raise the error of a single named job; after errors of
    several jobs, which are printed, raise SystemExit with code 1.
    """
    if bool(names) == bool(selector):
        raise click.UsageError("name the jobs, or select them with -l LABELS")
    if len(names) == 1:
        act(job_ref.find(session, names[0]))
        return
    failed = 0
    for find in _finders(session, names, selector):
        try:
            act(find())
        except USER_ERRORS as error:
            failed += 1
            click.echo(f"Error: {format_error(error)}", err=True)
    if failed:
        raise SystemExit(1)


def _finders(session: Session, names: tuple[str, ...], selector: str) -> Iterator[Callable[[], Manifest]]:
    for name in dict.fromkeys(names):
        yield lambda name=name: job_ref.find(session, name)  # type: ignore[misc]
    if selector:
        items = select(session, selector)
        yield from ((lambda item=item: item) for item in items)


def select(session: Session, selector: str) -> list[Manifest]:
    """Return the jobs of the namespace with these labels; tell if there are none."""
    items = session.cluster.list(TORCHJOBS, session.namespace, label_selector=selector).items
    if not items:
        click.echo(f"note: no job in namespace {session.namespace} has the labels {selector}", err=True)
    return items


def all_of(session: Session, names: tuple[str, ...], selector: str) -> list[Manifest]:
    """Return all jobs that are named or selected. Raise the first error, so that nothing is done half."""
    if bool(names) == bool(selector):
        raise click.UsageError("name the jobs, or select them with -l LABELS")
    return select(session, selector) if selector else [job_ref.find(session, name) for name in dict.fromkeys(names)]
