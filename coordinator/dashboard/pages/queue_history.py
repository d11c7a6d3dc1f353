"""What a queue did in the last day, by the recorder: its share beside its target, and its jobs in time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from coordinator.access.readers import Reader
from coordinator.dashboard import charts, paths
from coordinator.dashboard.charts import Bar, Curve
from coordinator.dashboard.elements import Element
from coordinator.dashboard.loads import Loads
from coordinator.dashboard.readings import FAILURES
from coordinator.dashboard.visitors import Visitor
from coordinator.query.questions import Document
from coordinator.wording import ages
from crds import timestamps

EVERY_SECONDS = 60.0
"""How often the recorder is asked while a page is open."""
_TIMELINES: Loads["Past"] = Loads(EVERY_SECONDS)


@dataclass(frozen=True, slots=True)
class Past:
    """What the recorder tells of a queue."""

    document: Document = field(default_factory=dict)
    """The answer to /v1/timeline; empty if there is none."""
    problem: str = ""
    """Why there is none."""


@dataclass(frozen=True, slots=True)
class StepShare:
    """The share of the queue in a part of the day."""

    start: str
    share: str
    target: str


@dataclass(frozen=True, slots=True)
class Day:
    """The share of the queue in the last day."""

    curve: Curve
    start: str
    end: str
    until: str
    """Up to when everything is recorded."""
    steps: tuple[StepShare, ...]


@dataclass(frozen=True, slots=True)
class JobInTime:
    """A job of the last day, as a row shows it."""

    name: str
    address: str
    state: str
    submitted: str
    waited: str
    held: str
    bar: Bar


def read(visitor: Visitor, queue: str) -> Past:
    """Return what the recorder tells of a queue, asked once a minute at most."""

    def ask(_: Past | None) -> Past:
        try:
            return Past(visitor.history().timeline({"queue": queue}))
        except FAILURES as error:
            return Past(problem=str(error))

    return _TIMELINES.get((visitor.secret, queue), ask)


def sections(past: Past, reader: Reader) -> Mapping[str, tuple[Element, ...]]:
    """Return the sections of the last day."""
    if not past.document:
        return {"day": (), "past": (), "past-note": (Element("past-none", "notice_text", past.problem),)}
    rows = tuple(_rows(past.document, reader))
    whose = "" if reader.everywhere else " that you may see"
    note = "" if rows else f"No job{whose} was in this queue in the last day."
    if past.document["hasMoreJobs"]:
        note = f"The newest {len(rows)} jobs; the list of jobs has the others."
    return {
        "day": (Element("day-share", "day", _day(past.document)),),
        "past": rows,
        "past-note": (Element("past-more", "note", note),) if note else (),
    }


def _day(document: Document) -> Day:
    steps = document["steps"]
    shares, targets = ([_part(each[name]) for each in steps] for name in ("sharePercent", "targetPercent"))
    label = (
        f"The share of the queue in the last day: {_extremes(shares)}. The line is its target: {_extremes(targets)}."
    )
    listed = tuple(
        StepShare(each["from"], _percents(each["sharePercent"]), _percents(each["targetPercent"]))
        for each in steps
        if each["sharePercent"] is not None or each["targetPercent"] is not None
    )
    curve = charts.curve(shares, targets, label)
    return Day(curve, document["from"], document["to"], document["until"], listed)


def _part(percents: int | None) -> float | None:
    return None if percents is None else percents / 100


def _percents(value: int | None) -> str:
    return "-" if value is None else f"{value}%"


def _extremes(parts: list[float | None]) -> str:
    known = [part for part in parts if part is not None]
    return f"from {min(known):.0%} to {max(known):.0%}" if known else "nothing"


def _rows(document: Document, reader: Reader) -> Iterator[Element]:
    start, end = (timestamps.parse_seconds(document[name]) for name in ("from", "to"))
    # Newest first, as the recorder tells them; it tells those of one second in no order.
    for job in sorted(document["items"], key=_age, reverse=True):
        if reader.may_read(job["namespace"]):
            yield Element(f"past-{job['uid']}", "past_job_bar", _row(job, start, end))


def _age(job: Document) -> tuple[str, str, int, str]:
    """Return the order of jobs in time: by submission, by when they got room, by names that end in numbers."""
    held = job["holds"][0]["from"] if job["holds"] else "~"
    return job["submitted"], held, len(job["name"]), job["name"]


def _row(job: Document, start: float, end: float) -> JobInTime:
    waits, holds = (
        [(timestamps.parse_seconds(span["from"]), timestamps.parse_seconds(span["to"])) for span in job[name]]
        for name in ("waits", "holds")
    )
    waited, held = (ages.duration(sum(last - first for first, last in spans)) for spans in (waits, holds))
    spans = [("waited", *each) for each in waits] + [("held", *each) for each in holds]
    full_name = f"{job['namespace']}/{job['name']}"
    label = f"{full_name} waited {waited} and held room {held if holds else 'never'}"
    return JobInTime(
        name=full_name,
        address=paths.with_query(paths.of_job(full_name), {"uid": str(job["uid"])}),
        state=job["state"],
        submitted=job["submitted"],
        waited=waited,
        held=held if holds else "-",
        bar=charts.time_bar(spans, start, end, label),
    )
