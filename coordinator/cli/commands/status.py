"""`torchq status`: the health of the whole system.

One rule: a part that does not answer is named, and the others are shown all the same.
"""

import sys
import time

import click

from coordinator.cli import api_client, output
from coordinator.cli.lazy_group import USER_ERRORS
from coordinator.cli.session import Session, pass_session
from coordinator.query.questions import Document
from coordinator.rbac.permissions import LEASE
from coordinator.wording import system_health
from crds.api_resources import LEASES
from kube import errors

LABEL = 14


@click.command()
@click.option(
    "--seconds",
    default=0.0,
    type=click.FloatRange(0, 60),
    help="measure rates over so many seconds (default: no rates)",
)
@output.FORM
@pass_session
def status(session: Session, seconds: float, form: str | None) -> None:
    """Show the health of the whole system. That is leader, workers, waits, Redis and API server, and rates if they are
    measured. Exit code 1: something is wrong."""
    document = {"cluster": session.cluster_name, **_status(session, seconds)}
    output.show(document, form, format_status)
    sys.exit(1 if document["trouble"] else 0)


def _status(session: Session, seconds: float) -> Document:
    """Return the health of the system. A part that does not answer is named, and the rest is shown all the same."""
    lease, rates = read_lease(session), Document()
    try:
        queries = api_client.find(session)
        numbers = queries.status()
        if seconds and "picks" in numbers:
            time.sleep(seconds)
            rates = system_health.rates(numbers, queries.status())
    except USER_ERRORS as error:
        return system_health.summarize(lease, {"redis": str(error)}, {})
    return system_health.summarize(lease, numbers, rates)


def read_lease(session: Session) -> Document:
    """Return the leader as the Lease names it, and the error of an API server that does not answer."""
    try:
        document = session.cluster.get(LEASES, LEASE, session.settings.lease_namespace)
    except errors.NotFound:
        return {"apiServer": "", "leader": ""}
    except errors.Forbidden:
        return {"apiServer": ""}
    except errors.ClusterError as error:
        return {"apiServer": str(error)}
    return system_health.leader_of(document, output.now())


def format_status(document: Document) -> str:
    """Format the health of the system, one line per part."""
    return output.facts(system_health.facts(document), LABEL)
