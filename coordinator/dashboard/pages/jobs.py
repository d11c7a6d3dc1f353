"""The list of jobs: filters in the address, newest first, and jobs that are deleted, from the history."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from coordinator.dashboard import paging, paths
from coordinator.dashboard.asked import Asked
from coordinator.dashboard.elements import Element, Page
from coordinator.dashboard.jobs import history
from coordinator.dashboard.jobs.history import PastJobs
from coordinator.dashboard.jobs.index import INDEXES, UNREADABLE, Filters, IndexedJob
from coordinator.dashboard.pages.problems import problems
from coordinator.dashboard.visitors import Visitor
from coordinator.query.questions import Document
from coordinator.wording import columns, history_columns, job_columns
from crds import excerpts

PATH = "/jobs"
PHASES = (
    "Pending",
    "Queued",
    "Admitted",
    "Running",
    "Suspended",
    "Deleting",
    "Succeeded",
    "Failed",
    "Cancelled",
)
LONGEST_FILTER = 253
PAST_TITLES = ("QUEUE", "OUTCOME", "WAITED", "HELD", "RESTARTS", "WHY")
"""The columns of `torchq history` that the page has, beside the hours."""
MOST_NAMES = 200
"""The most namespaces and queues that the fields of filters suggest."""
UTC_ZONE = ZoneInfo("UTC")
Places = Mapping[str, tuple[int, int]]
"""The places of waiting jobs, and how many jobs wait in their queues, by uid."""


@dataclass(frozen=True, slots=True)
class JobsLoaded:
    """What is read for this page alone."""

    past: PastJobs
    places: Places


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job, as a row shows it."""

    path: str
    namespace: str
    name: str
    queue: str
    queue_path: str
    phase: str
    pods: str
    created: str
    began: str
    """When the job began to run, if it runs now; its run time grows by itself."""
    runtime: str
    """The run time of a job that does not run any more."""
    reason: str


@dataclass(frozen=True, slots=True)
class PastRow:
    """A job of the history, as a row shows it."""

    path: str
    namespace: str
    name: str
    submitted: str
    cells: tuple[str, ...]


def filters(parameters: Mapping[str, str]) -> Filters:
    """Return the filters of an address. A filter that no job passes gives an empty list, and no error."""
    names = ("namespace", "queue", "phase", "reason", "name")
    return Filters(*(parameters.get(name, "").strip()[:LONGEST_FILTER] for name in names))


def load(visitor: Visitor, parameters: Mapping[str, str]) -> JobsLoaded:
    """Read the history of the jobs, and the places of those that wait in a queue that the filter names."""
    asked = filters(parameters)
    return JobsLoaded(history.jobs(visitor, asked.namespace, asked.queue), {})


def page(asked: Asked) -> Page:
    """Return the page."""
    wanted = filters(asked.parameters)
    query = {name: getattr(wanted, name) for name in Filters.__slots__} | {"page": asked.parameters.get("page", "")}
    index, reader = INDEXES.of(asked.reading), asked.bounds.reader
    now = datetime.fromtimestamp(asked.reading.at, UTC)
    shown, pager = paging.cut(index.find(reader, wanted), PATH, query)
    past = [each for each in history.gone(asked.loaded.past, index.by_uid) if _passes(each, wanted)]
    told = [each for each in past if reader.may_read(str(each.get("namespace")))][: paging.ROWS]
    return Page(
        template="jobs",
        title="Jobs",
        sections={
            "problems": tuple(problems(asked)),
            "pager": (Element("pager-jobs", "jobs_pager", pager),),
            "jobs": tuple(_row(each, asked.loaded.places, now) for each in shown),
            "past": tuple(_past(told)) if told else (),
            "past-note": (Element("past-note-text", "text", _past_note(asked.loaded.past, len(told))),),
        },
        fixed={
            "filters": wanted,
            "phases": PHASES,
            "namespaces": index.namespaces(reader)[:MOST_NAMES],
            "queues": _queue_names(asked),
        },
    )


def _queue_names(asked: Asked) -> list[str]:
    return sorted(str(each["metadata"]["name"]) for each in asked.bounds.queues(asked.reading.queues))[:MOST_NAMES]


def _row(each: IndexedJob, places: Places, now: datetime) -> Element:
    try:
        row = _cells(each, places, now)
    except UNREADABLE:
        path = paths.of_job(f"{each.namespace}/{each.name}")
        row = JobRow(path, each.namespace, each.name, "", "", "", "-", "", "", "-", "the job cannot be read")
    return Element(f"job-{each.uid}", "job", row)


def _cells(each: IndexedJob, places: Places, now: datetime) -> JobRow:
    item, status = each.item, columns.status_of(each.item)
    shape = {column.title: column for column in job_columns.job_columns(now, places)}
    began = status.get("startTime") or (status.get("admission") or {}).get("admittedAt") or ""
    is_over = bool(status.get("completionTime"))
    return JobRow(
        path=paths.of_job(f"{each.namespace}/{each.name}"),
        namespace=each.namespace,
        name=each.name,
        queue=each.queue,
        queue_path=paths.of_queue(each.queue),
        phase=each.phase,
        pods=str(shape["PODS"].text(item)),
        created=item["metadata"].get("creationTimestamp") or "",
        began="" if is_over else began,
        runtime=str(shape["RUNTIME"].text(item)) if is_over else "-",
        reason=str(shape["REASON"].text(item)),
    )


def _passes(job: Document, wanted: Filters) -> bool:
    state, why = str(job.get("state", "")), f"{job.get('reason', '')} {job.get('message', '')}"
    return (
        (not wanted.phase or state.casefold() == wanted.phase.casefold())
        and wanted.name.casefold() in str(job.get("name", "")).casefold()
        and wanted.reason.casefold() in why.casefold()
    )


def _past(items: list[Document]) -> Iterator[Element]:
    """Yield the rows of jobs of the history, after the row of their titles."""
    shape = history_columns.job_columns(items, UTC_ZONE, everywhere=True)
    shown = [each for each in shape if not each.wide and (each.title in PAST_TITLES or each.title.endswith("-HOURS"))]
    yield Element("past-titles", "past_titles", tuple(each.title.capitalize() for each in shown))
    for job in items:
        row = PastRow(
            path=paths.with_query(paths.of_job(f"{job['namespace']}/{job['name']}"), {"uid": str(job["uid"])}),
            namespace=job["namespace"],
            name=job["name"],
            submitted=job["submitted"],
            cells=tuple(excerpts.excerpt(str(each.text(job)), LONGEST_FILTER) for each in shown),
        )
        yield Element(f"past-{job['uid']}", "past_job", row)


def _past_note(past: PastJobs, shown: int) -> str:
    if past.problem:
        return past.problem
    return "" if shown else "the history has no such jobs that are deleted"
