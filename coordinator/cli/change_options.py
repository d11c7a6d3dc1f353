"""The options of commands that change objects, and who makes the changes of an invocation."""

from dataclasses import dataclass
from functools import partial

import click

from coordinator.cli import output
from coordinator.cli.session import Session
from coordinator.control import audit_events
from coordinator.control.change_author import ChangeAuthor
from kube import client


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """The options of a command that changes an object."""

    dry_run: bool = False
    reason: str = ""


change_options = output.as_value(
    "change",
    ChangeOptions,
    click.option("--dry-run", is_flag=True, help="validate on the API server, change nothing"),
    click.option("--reason", default="", metavar="TEXT", help="reason for the change, recorded in the event"),
)
"""Adds the options of every command that changes an object, which gets them as `change`."""


def author(session: Session, options: ChangeOptions) -> ChangeAuthor:
    """Return who makes the changes of an invocation, and prints each change and in which cluster it was made."""

    def tell(text: str) -> None:
        click.echo(f"{text} on {session.cluster_name}{' (dry run)' if options.dry_run else ''}")

    return ChangeAuthor(
        cluster=session.cluster,
        user=lambda: audit_events.whoami(session.cluster, lambda: client.context_user(session.connection)),
        tell=tell,
        warn=partial(click.echo, err=True),
        reason=options.reason,
        dry_run=options.dry_run,
    )
