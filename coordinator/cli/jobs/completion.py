"""The completion of the names of jobs and queues in a shell.

One rule: completion is quick and silent. An error only means that nothing is completed.
"""

import contextlib
from pathlib import Path

import click

from coordinator.cli.session import Session
from crds.api_resources import TENANT_QUEUES, TORCHJOBS, Resource

MOST_NAMES = 500
"""The most names that a shell is offered."""


def jobs(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of jobs of the namespace that begin with the incomplete word."""
    return _names(context, TORCHJOBS, incomplete)


def queues(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of queues that begin with the incomplete word."""
    return _names(context, TENANT_QUEUES, incomplete)


def _names(context: click.Context, resource: Resource, incomplete: str) -> list[str]:
    with contextlib.suppress(Exception):
        # A shell that completes runs no command that would have made the session.
        given = {name: value for name, value in context.find_root().params.items() if value is not None}
        file: Path | None = given.pop("file", None)
        session = Session(given, file)
        namespace = session.namespace if resource.namespaced else ""
        # The connection for the Lease waits two seconds and tries once: the user has a key pressed.
        items = next(iter(session.lease_cluster.pages(resource, namespace))).items
        return sorted(name for item in items if (name := item["metadata"]["name"]).startswith(incomplete))[:MOST_NAMES]
    return []
