"""`torchq history` and `torchq usage`: what happened to jobs, and who used how much.

One rule: the history is only read here, and the answers are those of the recorder.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import tzinfo
from typing import TypeVar
from zoneinfo import ZoneInfo

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from coordinator.cli import job_ref, lazy_group, output
from coordinator.cli.history import sources
from coordinator.cli.jobs import completion
from coordinator.cli.output import TableOptions
from coordinator.cli.session import JobGroup, Session, pass_session, with_namespace
from coordinator.query.history_answers import GROUPINGS, MOST_JOBS, PAGE
from coordinator.query.questions import Document
from coordinator.query.remote_queries import History
from coordinator.wording import history_columns
from crds import timestamps
from history import spans
from history.errors import InvalidQuery
from history.rows import OUTCOMES

T = TypeVar("T")
MIGRATION = "coordinator.recorder.sql_store:migrate"
PROGRAMS = ("json", "yaml", "csv")
"""The forms for programs, which are always complete."""
TIMES = "7d, 12h, 2026-11-20 or 2026-11-20T09:00"
_WIDTH = 11
_UID = (8, 4, 4, 4, 12)
"""The lengths of the parts of a uid."""

zone_option = click.option("--tz", default="UTC", show_default=True, metavar="ZONE", help="zone of times and months")
since_option = click.option("--since", default="", metavar="TIME", help=TIMES)
until_option = click.option("--until", default="", metavar="TIME", help="the end, written as --since")
everywhere_option = click.option("-A", "--all-namespaces", is_flag=True, help="jobs of every namespace")


class HistoryGroup(JobGroup):
    """A group in which the name of a job stands for the command that shows the job."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of the first argument; any other argument is the name of a job."""
        return super().resolve_command(ctx, args if args[0] in self.list_commands(ctx) else ["show", *args])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and the names of jobs that begin with the incomplete word."""
        names = completion.jobs(ctx, self.params[0], incomplete)
        return [*super().shell_complete(ctx, incomplete), *map(CompletionItem, names)]


@click.group(cls=HistoryGroup, invoke_without_command=True, subcommand_metavar="[JOB]", no_args_is_help=False)
@everywhere_option
@click.option("--queue", default="", shell_complete=completion.queues, help="only jobs of this queue")
@click.option("--user", default="", help="only jobs that this user has submitted")
@click.option("--outcome", type=click.Choice(OUTCOMES, case_sensitive=False), help="only jobs that ended so")
@since_option
@until_option
@zone_option
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help=f"how many jobs, the newest first (default: {PAGE}; with -o json, yaml and csv all)",
)
@output.sheet_options
@click.pass_context
def history(
    context: click.Context, /, all_namespaces: bool, limit: int | None, listing: TableOptions, **asked: str | None
) -> None:
    """List what happened to jobs. Deleted ones are listed, too, and the newest first. With JOB, one job is shown with
    each hold.

    JOB is a name, NAME/UID, NAMESPACE/NAME or the handle that `submit` printed.

    \b
    torchq history --since 7d --outcome Failed
    torchq history digits-x7k2
    """
    if context.invoked_subcommand is not None:
        if any(context.get_parameter_source(name) is not ParameterSource.DEFAULT for name in context.params):
            raise click.UsageError("options of one job follow its name, as in: torchq history digits -o json")
        return
    session: Session = context.find_object(Session)  # type: ignore[assignment]
    session = session.with_all_namespaces() if all_namespaces else session
    query = {name: value for name, value in asked.items() if value}
    zone = _check(query)
    if not all_namespaces:
        query["namespace"] = sources.namespace(session)
    most = limit or (None if listing.form in PROGRAMS else PAGE)
    found = _Pages(sources.find(session), query, most)
    items = [*found]
    listing.show(history_columns.job_columns(items, zone, everywhere=all_namespaces), items)
    _say_until(session, found.until, zone)
    if found.has_more:
        click.echo("there are older jobs: --limit, --since and --until show them", err=True)
    elif not items:
        click.echo("the history has no such jobs", err=True)


class _Pages:
    """The jobs of an answer, page by page."""

    def __init__(self, source: History, query: Mapping[str, str], most: int | None) -> None:
        self._source, self._query, self._most = source, query, most
        self.has_more = False
        self.until: str = ""

    def __iter__(self) -> Iterator[Document]:
        """Yield jobs, as many as are wanted."""
        count = 0
        following: dict[str, str] = {}
        while self._most is None or count < self._most:
            wanted = MOST_JOBS if self._most is None else min(MOST_JOBS, self._most - count)
            page = _answered(self._source.jobs, {**self._query, "limit": str(wanted), **following})
            self.until, self.has_more = page["until"], bool(page["continue"])
            yield from page["items"]
            count += len(page["items"])
            if not page["continue"]:
                return
            following = {"continue": page["continue"]}


@history.command(hidden=True)
@click.argument("job", shell_complete=completion.jobs)
@zone_option
@output.FORM
@pass_session
def show(session: Session, job: str, tz: str, form: str | None) -> None:
    """Show one job with each hold."""
    zone = _check({"tz": tz})
    namespace, name, uid = _parse(session, job)
    document = sources.find(session).job(namespace, name, uid)
    output.show(document, form, lambda found: job_text(found, zone))
    _say_until(session, document["until"], zone)


@history.command()
@pass_session
def migrate(session: Session) -> None:
    """Bring the database to this version. A migration only adds: the version before goes on writing. The database is
    that of the settings history_url or history_url_file."""
    click.echo(lazy_group.find(MIGRATION)(session.settings))


def _parse(session: Session, handle: str) -> tuple[str, str, str]:
    """Split a reference to a job, which may be NAME/UID, into namespace, name and uid."""
    name, _, rest = handle.partition("/")
    if not rest or tuple(map(len, rest.split("-"))) == _UID:
        return sources.namespace(session), name, rest
    return job_ref.parse(session, handle)


@click.command()
@everywhere_option
@click.option("--month", default="", metavar="YYYY-MM", help="a month (default: this one)")
@since_option
@until_option
@zone_option
@click.option("--by", type=click.Choice(GROUPINGS), default="queue", show_default=True, help="what each line is about")
@output.sheet_options
@pass_session
def usage(session: Session, /, all_namespaces: bool, by: str, listing: TableOptions, **asked: str) -> None:
    """Show who has used how much. For a month, or from one time to another, a line has GPU-hours with those of running
    jobs, the share beside the target, price, waits, and hours of failed jobs. Without -A, what other namespaces have
    used is one line.

    \b
    torchq usage --month 2026-11
    torchq usage --since 7d --by user -o csv
    """
    session = session.with_all_namespaces() if all_namespaces else session
    query = {"by": by, **{name: value for name, value in asked.items() if value}}
    zone = _check(query)
    document = _answered(sources.find(session).usage, query)
    shape, lines = history_columns.usage_columns(document), history_columns.usage_lines(document)
    if listing.form in ("json", "yaml"):
        output.print_document(document | {"items": listing.sort(shape, document["items"])}, listing.form)
        return
    listing.show(shape, lines)
    if listing.form not in PROGRAMS:
        click.echo(history_columns.cluster_line(document, zone))
    if not lines:
        click.echo(history_columns.NOTHING_HELD, err=True)
    _say_until(session, min(document["until"], document["to"], key=timestamps.parse), zone, document["to"])


with_namespace(history)
with_namespace(usage)


def _check(query: Mapping[str, str]) -> ZoneInfo:
    """Return the zone of a query whose times are right. Raises UsageError."""
    _answered(lambda asked: spans.parse(asked, int(time.time())), query)
    return _answered(lambda asked: spans.parse_zone(asked.get("tz", "")), query)


def _answered(ask: Callable[[Mapping[str, str]], T], query: Mapping[str, str]) -> T:
    """Return an answer. Raises UsageError, which names the option, for a query that is wrong."""
    try:
        return ask(query)
    except InvalidQuery as error:
        raise click.UsageError(f"--{error}") from error


def _say_until(session: Session, until: str, zone: ZoneInfo, end: str | None = None) -> None:
    """Say up to when everything is recorded, if that is not up to now, or up to the end that the user asks for."""
    now = output.now()
    missing = min(now, timestamps.parse(end) if end else now) - timestamps.parse(until)
    is_down = session.is_embedded and not session.target.runs
    if missing.total_seconds() > (0 if is_down else sources.FRESH_SECONDS):
        reason = "the cluster is down" if is_down else "nothing newer is recorded"
        click.echo(f"note: {reason}; history up to {history_columns.stamp(until, zone)}", err=True)


def job_text(job: Document, zone: tzinfo) -> str:
    """Format one job with its holds."""
    parts = [output.facts(history_columns.job_facts(job, zone), _WIDTH)]
    if job["holds"]:
        parts += ["", output.table(history_columns.holds(job, zone))]
    if job["pods"]:
        parts += ["", history_columns.later_pods_title(job), output.table(history_columns.later_pods(job, zone))]
    if others := history_columns.other_jobs(job, zone):
        parts += ["", *others]
    return "\n".join(parts)
