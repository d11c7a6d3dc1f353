"""Who has used how much: the table of `torchq usage`, with bars, and as CSV."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from coordinator.dashboard import charts, paging, paths
from coordinator.dashboard.asked import Asked
from coordinator.dashboard.charts import Bar
from coordinator.dashboard.elements import Download, Element, Page
from coordinator.dashboard.jobs.tables import JobCell
from coordinator.dashboard.loads import Loads
from coordinator.dashboard.pages.problems import problems
from coordinator.dashboard.readings import FAILURES
from coordinator.dashboard.visitors import Visitor
from coordinator.query import history_answers
from coordinator.query.questions import Document
from coordinator.wording import columns, history_columns
from coordinator.wording.columns import TableColumn
from crds import excerpts
from history import spans
from history.errors import InvalidQuery

PATH, SHEET_PATH = "/usage", "/usage.csv"
PARAMETERS = ("by", "month", "since", "until", "tz")
EVERY_SECONDS = 60.0
"""How often the recorder is asked while a page is open."""
LONGEST = 200
"""The most characters of a parameter, and of a cell."""
POOL_PARTS = (("paid", "used"), ("idleGrowth", "idle"), ("idleWhileWaiting", "waited"), ("idle", "free"))
"""What became of the pool, and the styles of these parts."""
_KEPT: Loads["UsageLoaded"] = Loads(EVERY_SECONDS)


@dataclass(frozen=True, slots=True)
class UsageLoaded:
    """What the recorder tells of a span."""

    document: Document = field(default_factory=dict)
    """The answer to /v1/usage; empty if there is none."""
    wrong: str = ""
    """What is wrong with the address."""
    problem: str = ""
    """Why there is no answer."""


@dataclass(frozen=True, slots=True)
class UsageRow:
    """What one queue, namespace or user has used."""

    name: str
    bar: Bar
    cells: tuple[JobCell, ...]


def load(visitor: Visitor, parameters: Mapping[str, str]) -> UsageLoaded:
    """Ask the recorder what the address asks for, once a minute at most."""
    query = _query(parameters)
    try:
        history_answers.parse_usage(query, int(time.time()))
    except InvalidQuery as error:
        return UsageLoaded(wrong=str(error))

    def ask(_: UsageLoaded | None) -> UsageLoaded:
        try:
            return UsageLoaded(visitor.history().usage(query))
        except FAILURES as error:
            return UsageLoaded(problem=str(error))

    # Figures of namespaces that the visitor may not list any more are not kept.
    reader = visitor.bounds(()).reader
    return _KEPT.get((visitor.secret, reader, tuple(query.items())), ask)


def _query(parameters: Mapping[str, str]) -> Mapping[str, str]:
    return {name: parameters[name][:LONGEST] for name in PARAMETERS if parameters.get(name)}


def page(asked: Asked) -> Page:
    """Return the page."""
    loaded: UsageLoaded = asked.loaded
    query = _query(asked.parameters)
    return Page(
        template="usage",
        title="Usage",
        sections={
            "problems": tuple(problems(asked)),
            "wrong": (Element("wrong-query", "wrong", loaded.wrong),) if loaded.wrong else (),
            "missing": (Element("missing-recorder", "notice_text", loaded.problem),) if loaded.problem else (),
            **_table(loaded.document, asked.query(*PARAMETERS, "sort", "page")),
        },
        fixed=MappingProxyType(
            {
                "query": {name: query.get(name, "") for name in PARAMETERS},
                "groupings": history_answers.GROUPINGS,
                "sheet": paths.with_query(SHEET_PATH, query),
            }
        ),
    )


def sheet(asked: Asked) -> Page:
    """Return the table as CSV, as `torchq usage -o csv` prints it; the page with the reason where there is none."""
    found = page(asked)
    document = asked.loaded.document
    if not document:
        return found
    text = columns.sheet(history_columns.usage_columns(document), history_columns.usage_lines(document))
    name = f"usage-{document['from'][:10]}-{document['by']}.csv"
    return Page(found.template, found.title, found.sections, found.fixed, Download(name, "text/csv", text))


def _table(document: Document, query: Mapping[str, str]) -> Mapping[str, tuple[Element, ...]]:
    if not document:
        return {name: () for name in ("span", "cluster", "usage-head", "usage", "usage-pager")}
    shape = [column for column in history_columns.usage_columns(document) if not column.wide]
    lines = history_columns.usage_lines(document)
    by_name = {column.title.lower(): column for column in shape}
    column, descending = paging.sorted_by(query, by_name)
    ordered = lines if column is None else columns.ordered(lines, column, descending=descending)
    shown, pager = paging.cut(ordered, PATH, query)
    nothing = "" if lines else f"{history_columns.NOTHING_HELD[:1].upper()}{history_columns.NOTHING_HELD[1:]}."
    return {
        "span": (Element("span-times", "span", (document["from"], document["to"], document["until"])),),
        "cluster": tuple(_cluster(document)),
        "usage-head": (Element("usage-titles", "usage_titles", tuple(_titles(shape, query))),),
        "usage": tuple(_rows(shape, shown)),
        "usage-pager": (Element("usage-pages", "pager", (pager, "groups", nothing)),),
    }


def _titles(shape: Sequence[TableColumn], query: Mapping[str, str]) -> Iterator[paging.Heading]:
    for column in shape:
        text = column.title.capitalize().replace("Gpu", "GPU").replace("gpu", "GPU").replace("Cpu", "CPU")
        kind = "" if column.order is None else "n"
        yield paging.heading(text.replace("cpu", "CPU"), column.title.lower(), PATH, query, kind=kind)


def _rows(shape: Sequence[TableColumn], lines: Sequence[Document]) -> Iterator[Element]:
    for number, line in enumerate(lines):
        first, *others = (
            JobCell(excerpts.excerpt(str(column.text(line)), LONGEST), "" if column.order is None else "n")
            for column in shape
        )
        share, target = (_part(line[name]) for name in ("sharePercent", "targetPercent"))
        words = f"share {_percents(line['sharePercent'])}, target {_percents(line['targetPercent'])}"
        row = UsageRow(first.text, charts.share_bar(share, target, words), tuple(others))
        yield Element(f"usage-{number}", "usage", row)


def _cluster(document: Document) -> Iterator[Element]:
    zone = spans.parse_zone(document["zone"])
    words = history_columns.cluster_line(document, zone)
    known = (document["cluster"] or {}).get("percents")
    bar = charts.parts_bar([(kind, known[name]) for name, kind in POOL_PARTS], charts.WHOLE, words) if known else None
    yield Element("cluster-use", "cluster", (words, bar))


def _part(percents: int | None) -> float | None:
    return None if percents is None else percents / 100


def _percents(value: int | None) -> str:
    return "-" if value is None else f"{value}%"
