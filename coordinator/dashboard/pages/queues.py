"""The first page: what is wrong, the pool, the queues, and the next picks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from itertools import islice
from types import MappingProxyType
from typing import Any

from coordinator.dashboard import charts, moments, paging, paths, readings
from coordinator.dashboard.asked import Asked
from coordinator.dashboard.charts import Bar
from coordinator.dashboard.elements import Element, Page
from coordinator.dashboard.pages import amounts
from coordinator.dashboard.pages.amounts import Counted
from coordinator.dashboard.pages.kept_rows import KeptRows
from coordinator.dashboard.pages.problems import problems
from coordinator.dashboard.paging import Pager
from coordinator.query.questions import ANOTHER, Document
from coordinator.wording import pick_columns, queue_columns, system_health
from coordinator.wording.amounts import format_amounts
from coordinator.wording.columns import TableColumn, ordered, status_of

PATH = "/"
SHOWN_FACTS = ("Leader", "Workers", "Jobs", "Waits")
"""What the page says of the whole system where nothing is wrong."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SORTS: Mapping[str, TableColumn] = MappingProxyType(
    {column.title.lower(): column for column in queue_columns.queue_columns(_EPOCH) if column.title != "AGE"}
)
"""The columns by which queues are sorted, by the names that the address has."""
HEADINGS = (
    ("Queue", "name", ""),
    ("Share", "share", "gauge"),
    ("Waiting", "pending", "n"),
    ("Admitted", "admitted", "n"),
    ("Oldest wait", "oldest", "n"),
    ("Lag", "lag", "n"),
    ("State", "state", ""),
)
"""The titles of columns, the names by which the address sorts by them, and the classes of their cells."""
SHOWN_STATUS = ("share", "target", "usage", "idleUsage", "pending", "admitted", "lag", "deleted")
"""What a row shows of the status of a queue. The rest may change each second."""
MOST_HEADINGS = 64
USAGE_AT = 2
"""The place of the column of what is used of the quota, which has no order."""


@dataclass(frozen=True, slots=True)
class ShownQueue:
    """A queue, as a row shows it."""

    name: str
    address: str
    settings: str
    """Its weight and its cohort."""
    state: str
    share: str
    target: str
    share_bar: Bar
    used: str
    usage_bar: Bar
    pending: int
    admitted: int
    oldest: str
    """The time since which its oldest job waits; empty if none waits."""
    lag: str


@dataclass(frozen=True, slots=True)
class OtherQueues:
    """The queues of which the visitor is told no name, as one row."""

    share: str
    target: str
    share_bar: Bar
    used: str
    usage_bar: Bar
    pending: int
    admitted: int


@dataclass(frozen=True, slots=True)
class ShownPick:
    """A forecast pick, as a row shows it."""

    number: int
    queue: str
    queue_address: str
    job: str
    job_address: str
    is_now: bool
    when: str
    since: str
    demand: str


@dataclass(frozen=True, slots=True)
class PoolPart:
    """A resource of the pool."""

    name: str
    text: str
    bar: Bar


def page(asked: Asked) -> Page:
    """Return the page."""
    query = asked.query("sort", "page")
    rows, pager = _rows(asked, query)
    room = amounts.room(asked.reading)
    return Page(
        template="queues",
        title="Queues",
        sections={
            "problems": tuple(problems(asked)),
            "facts": tuple(_facts(asked)),
            "pool": tuple(_pool(asked)),
            "queues": tuple(_row(asked, item, room) for item in rows),
            "queues-others": asked.reading.once(("others", asked.bounds), partial(_others, asked, room)),
            "queues-pager": (Element("queues-pages", "pager", (pager, "queues", _none(asked, pager))),),
            "picks": tuple(_picks(asked)),
            "picks-note": tuple(_picks_note(asked)),
        },
        fixed=MappingProxyType({"headings": _headings(tuple(query.items()), room.unit)}),
    )


@lru_cache(MOST_HEADINGS)
def _headings(query: tuple[tuple[str, str], ...], unit: str) -> Sequence[paging.Heading]:
    found = [paging.heading(text, name, PATH, dict(query), kind=kind) for text, name, kind in HEADINGS]
    return [*found[:USAGE_AT], paging.Heading(unit, "", kind="gauge"), *found[USAGE_AT:]]


def _rows(asked: Asked, query: Mapping[str, str]) -> tuple[Sequence[Document], Pager]:
    """Return the queues that the page shows of those that the visitor sees. The usual order has those with jobs
    first."""
    column, descending = paging.sorted_by(asked.parameters, SORTS)
    queues = asked.reading.queues
    if column is None and asked.bounds.reader.everywhere:
        # Nearly all visitors look at the first page, and the queues behind it need not be looked into.
        shown, pager = paging.window(len(queues), PATH, query)
        return [*islice(queue_columns.busy_first(queues), shown.start, shown.stop)], pager

    def in_order() -> Sequence[Document]:
        if column is None:
            return [*queue_columns.busy_first(queues)]
        return column_order(queues, column, descending=descending)

    name = f"queues {'-' * descending}{column.title if column else ''}"
    return paging.cut(asked.bounds.queues(asked.reading.once(name, in_order)), PATH, query)


def column_order(queues: Sequence[Document], column: TableColumn, *, descending: bool) -> Sequence[Document]:
    """Return queues in the order of a column; those that are alike by their names."""
    return ordered(sorted(queues, key=_name), column, descending=descending)


def _name(item: Document) -> str:
    return str(item["metadata"]["name"])


def _row(asked: Asked, item: Document, room: Counted) -> Element:
    name = _name(item)
    began = asked.reading.began.get(readings.queue_wait(name))
    figures = (*map(status_of(item).get, SHOWN_STATUS),)
    return _ROWS.get(name, name, "uid" in item["metadata"], item["spec"], figures, began, room)


def _made_row(
    name: str, is_object: bool, spec: Document, figures: Sequence[Any], began: float | None, room: Counted
) -> Element:
    status = dict(zip(SHOWN_STATUS, figures, strict=True))
    item = {"metadata": {"name": name} | ({"uid": ""} if is_object else {}), "spec": spec, "status": status}
    share, target = (str(status.get(each) or "-") for each in ("share", "target"))
    of_target = f"share {share}, target {target}"
    used = amounts.counted(item, room)
    row = ShownQueue(
        name=name,
        address=paths.of_queue(name),
        state=queue_columns.queue_state(item),
        share=share,
        target=target,
        share_bar=charts.share_bar(queue_columns.part(item, "share"), queue_columns.part(item, "target"), of_target),
        used=used.text,
        usage_bar=charts.quota_bar(used.used, used.idle, used.quota, room.whole, f"{room.unit}: {used.sentence}"),
        pending=status.get("pending") or 0,
        admitted=status.get("admitted") or 0,
        oldest=moments.stamp(began),
        lag=str(SORTS["lag"].text(item)),
        settings=_settings(item),
    )
    return Element(f"queue-{name}", "queue", row)


_ROWS = KeptRows(_made_row)


def _others(asked: Asked, room: Counted) -> tuple[Element, ...]:
    """Return the row of the queues of which the visitor is told nothing but sums; none if there are no such queues."""
    if asked.bounds.reader.everywhere:
        return ()
    hidden = [item for item in asked.reading.queues if not asked.bounds.is_listed(_name(item))]
    if not hidden:
        return ()
    share, target = (sum(queue_columns.part(item, each) or 0.0 for item in hidden) for each in ("share", "target"))
    uses = [amounts.counted(item, room) for item in hidden]
    used, idle = sum(each.used for each in uses), sum(each.idle for each in uses)
    words = f"share {share:.0%}, target {target:.0%}"
    row = OtherQueues(
        share=f"{share:.0%}",
        target=f"{target:.0%}",
        share_bar=charts.share_bar(share, target, words),
        used=f"{used:g}",
        usage_bar=charts.quota_bar(used, idle, None, room.whole, f"{room.unit}: {used:g} used"),
        pending=sum(status_of(item).get("pending", 0) for item in hidden),
        admitted=sum(status_of(item).get("admitted", 0) for item in hidden),
    )
    return (Element("other-queues", "other_queues", row),)


def _settings(item: Document) -> str:
    cohort = item["spec"].get("cohort")
    return f"weight {SORTS['weight'].text(item)}" + (f", cohort {cohort}" if cohort else "")


def _none(asked: Asked, pager: Pager) -> str:
    if pager.total:
        return ""
    if asked.reading.queues:
        return "There is no queue that you may see."
    return "No queue is known yet." if "coordinator" in asked.reading.problems else "There are no queues yet."


def _facts(asked: Asked) -> Iterator[Element]:
    numbers = asked.reading.status
    if not numbers:
        return
    document = system_health.summarize({"apiServer": ""}, numbers, {})
    found = dict(system_health.facts(document))
    for title in SHOWN_FACTS:
        if title in found:
            yield Element(f"fact-{title.lower()}", "fact", (title, str(found[title])))


def _pool(asked: Asked) -> Iterator[Element]:
    queues = asked.bounds.queues(asked.reading.queues) if asked.reading.has_idle_growth else ()
    use = partial(amounts.pool, asked.reading, queues)
    for each in asked.reading.once("pool", use) if asked.bounds.reader.everywhere else use():
        part = PoolPart(each.name, each.text, charts.parts_bar(each.parts, each.whole, each.sentence))
        yield Element(f"pool-{each.name}", "pool", part)


def picks(asked: Asked) -> list[Document]:
    """Return the next picks that the visitor sees: those that go now, and those that wait for room."""
    fitting, ordered = (
        asked.bounds.picks({"items": answer.get("items", [])})["items"]
        for answer in (asked.reading.upcoming, asked.reading.in_order)
    )
    return pick_columns.with_later_picks(fitting, ordered, readings.PICKS)


def _picks(asked: Asked) -> Iterator[Element]:
    for pick in picks(asked):
        queue = pick.get("queue", "")
        shown = pick["pick"], queue, pick["job"], pick["when"], pick.get("demand")
        yield _PICKS.get(shown[:3], *shown, asked.reading.began.get(readings.pick_wait(pick)))


def _made_pick(number: int, queue: str, job: str, when: str, demand: Document | None, began: float | None) -> Element:
    row = ShownPick(
        number=number,
        queue=queue,
        queue_address=paths.of_queue(queue) if queue else "",
        job=job,
        job_address="" if job == ANOTHER else paths.of_job(job),
        is_now=when == pick_columns.NOW,
        when=when,
        since=moments.stamp(began),
        demand=format_amounts(demand),
    )
    return Element(f"pick-{number}", "pick", row)


_PICKS = KeptRows(_made_pick)


def _picks_note(asked: Asked) -> Iterator[Element]:
    waiting = asked.reading.upcoming.get("waiting", 0)
    if asked.reading.upcoming.get("items") or asked.reading.in_order.get("items"):
        return
    text = f"{pick_columns.no_picks(waiting)}; the page of a job says why" if waiting else "no job waits"
    yield Element("picks-none", "note", text[:1].upper() + text[1:] + ".")
