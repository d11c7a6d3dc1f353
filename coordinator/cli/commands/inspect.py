"""`torchq next|status|top` and `torchq job why|position`: what the queues will do, and why a job waits.

One rule: looking changes nothing; what is foretold is made by the picker that will make it.
"""

import sys
import time
from collections.abc import Iterator
from typing import Any

import click

from coordinator.cli import api_client, columns, job_context, job_details, job_ref, output, text
from coordinator.cli.job_details import Around
from coordinator.cli.job_ref import NAME
from coordinator.cli.output import Listing
from coordinator.cli.session import SHOWN, Session, pass_session
from coordinator.query.documents import Document
from coordinator.query.queries import MOST_FORETOLD, Reading
from coordinator.rbac.permissions import LEASE
from crds.api_resources import LEASES
from kube import errors
from kube.api import Manifest

FORM = click.option("-o", "form", type=click.Choice(["json", "yaml"]), help="print for programs")
CLEAR = "\x1b[2J\x1b[H"
SILENT_SECONDS = 30.0
"""A Lease that nobody has renewed for so long has no holder worth naming."""


@click.command()
@NAME
@FORM
@pass_session
def why(session: Session, name: str, form: str | None) -> None:
    """Tell why a job waits, in numbers."""
    found = _placed(session, name)
    if form:
        output.show(found, form)
        return
    click.echo(text.why(found))


@click.command()
@NAME
@FORM
@pass_session
def position(session: Session, name: str, form: str | None) -> None:
    """Tell where a waiting job stands in its queue, and which of the next picks it is."""
    found = _placed(session, name)
    if form:
        output.show(found, form)
        return
    click.echo(text.position(found))


def _placed(session: Session, name: str) -> Document:
    """What the job says of itself, and where it stands if it waits."""
    item = job_ref.find(session, name)
    if not text.waits(item):
        short = job_ref.admitted(item) and item["status"].get("phase") != "Running"
        around = job_context.of(session.cluster, item) if short else Around(now=output.now())
        found = job_details.of(item, around)
        return text.settled(item, found["tasks"], found["restarts"].get("notBefore", ""), _if_resumed(session, item))
    return text.waiting(item, api_client.find(session).job(job_ref.key(item)))


def _if_resumed(session: Session, item: Manifest) -> Document | None:
    """What would become of a suspended job that holds nothing, if it were resumed now."""
    if not item["spec"].get("suspend") or job_ref.admitted(item) or job_ref.finished(item):
        return None
    try:
        return api_client.find(session).job(job_ref.key(item)).get("ifResumed")
    except SHOWN as error:
        return {"unknown": str(error)}


@click.command("next")
@click.option(
    "-n", "count", type=click.IntRange(1, MOST_FORETOLD), default=20, show_default=True, help="how many picks"
)
@click.option("--roomy", is_flag=True, help="as if the pool had room for everything: the order alone")
@click.option("-A", "--all-namespaces", is_flag=True, help="picks are made over all namespaces anyway")
@output.listing
@pass_session
def foretell(session: Session, /, count: int, roomy: bool, all_namespaces: bool, **options: Any) -> None:  # noqa: ARG001
    """Foretell the next picks, as they would be made now."""
    listing = output.asked(options)
    found = api_client.find(session).next(count, roomy=roomy)
    listing.show(columns.pick_columns(), found["items"])
    if not found["items"] and found["waiting"]:
        click.echo(f"note: none of {found['waiting']} waiting jobs fits now; --roomy shows their order", err=True)


@click.command()
@click.option(
    "--seconds",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0, 60),
    help="over how long rates are measured; 0: no rates",
)
@FORM
@pass_session
def status(session: Session, seconds: float, form: str | None) -> None:
    """Show how everything does: leader, workers, rates, waits, Redis and API server; exit code 1 if something is
    wrong."""
    found = {"cluster": session.cluster_word, **_status(session, seconds)}
    if form:
        output.show(found, form)
    else:
        click.echo(text.status(found))
    sys.exit(1 if found["trouble"] else 0)


def _status(session: Session, seconds: float) -> Document:
    """Whatever is away is named; the rest is shown all the same."""
    lease = _lease(session)
    try:
        reading = api_client.find(session)
        numbers = reading.status()
        rates = _rates(reading, numbers, seconds)
    except SHOWN as error:
        return text.summary(lease, {"redis": str(error)}, {})
    return text.summary(lease, numbers, rates)


def _rates(reading: Reading, before: Document, seconds: float) -> Document:
    if not seconds or "picks" not in before:
        return {}
    time.sleep(seconds)
    return text.rates(before, reading.status())


def _lease(session: Session) -> Document:
    """The leader as its Lease names it, and whether the API server is well."""
    try:
        found = session.cluster.get(LEASES, LEASE, session.settings.lease_namespace)
    except errors.NotFound:
        return {"apiServer": "", "leader": ""}
    except errors.Forbidden:
        return {"apiServer": ""}
    except errors.ClusterError as error:
        return {"apiServer": str(error)}
    spec = found.get("spec") or {}
    silent = text.since(spec.get("renewTime"), output.now())
    alive = silent is not None and silent < SILENT_SECONDS
    holder = str(spec.get("holderIdentity") or "") if alive else ""
    return {"apiServer": "", "leader": holder, "renewedSecondsAgo": silent}


@click.command()
@click.option("--every", default=2.0, show_default=True, type=click.FloatRange(0.2, 3600), help="seconds between looks")
@click.option("--count", default=0, type=click.IntRange(min=0), help="looks to take (default: until Ctrl-C)")
@click.option("-n", "picks", default=5, show_default=True, type=click.IntRange(0, 50), help="next picks to show")
@click.option("--sort-by", default="", metavar="COLUMN", help="order queues by this column; -COLUMN: the other way")
@pass_session
def top(session: Session, every: float, count: int, picks: int, sort_by: str) -> None:
    """Watch queues, rates and the next picks live."""
    before: Document = {}
    for number, _ in enumerate(_ticks(every, count)):
        screen, before = _screen(session, before, picks, Listing(sort_by=sort_by))
        click.echo((CLEAR if sys.stdout.isatty() else "\n" * bool(number)) + screen)


def _ticks(every: float, count: int) -> Iterator[None]:
    """One at once, then one every so many seconds."""
    taken = 0
    while True:
        yield
        taken += 1
        if taken == count:
            return
        try:
            time.sleep(every)
        except KeyboardInterrupt:
            return


def _screen(session: Session, before: Document, picks: int, listing: Listing) -> tuple[str, Document]:
    """What is to be seen now; who is away is named, and looked for again the next time."""
    cluster, lease = {"cluster": session.cluster_word}, _lease(session)
    try:
        reading = api_client.find(session)
        numbers = reading.status()
        queues = reading.queues()
        upcoming = reading.next(picks)["items"] if picks else []
    except SHOWN as error:
        return text.status(cluster | text.summary(lease, {"redis": str(error)}, {})), {}
    parts = [
        text.status(cluster | text.summary(lease, numbers, text.rates(before, numbers) if before else {})),
        listing.table(columns.queue_columns(output.now()), queues),
        listing.table(columns.pick_columns(), upcoming) if upcoming else "",
    ]
    return "\n\n".join(filter(None, parts)), numbers
