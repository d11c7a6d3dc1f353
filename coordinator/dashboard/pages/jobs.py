"""The list of jobs: filters in the address, newest first, and jobs that are deleted, from the history."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from zoneinfo import ZoneInfo

from coordinator.access.readers import EVERYWHERE
from coordinator.dashboard import paging, paths
from coordinator.dashboard.asked import Asked
from coordinator.dashboard.elements import Element, Page
from coordinator.dashboard.jobs import history, tables
from coordinator.dashboard.jobs.history import RecordedJobs
from coordinator.dashboard.jobs.index import INDEXES, UNREADABLE, Filters, IndexedJob, JobIndex
from coordinator.dashboard.loads import Loads
from coordinator.dashboard.pages.kept_rows import KeptRows
from coordinator.dashboard.pages.problems import problems
from coordinator.dashboard.readings import FAILURES
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
_ANY_TIME = datetime.fromtimestamp(0, UTC)
"""No cell depends on the present time: the browser counts ages, and a run time is shown at its end only."""
Places = Mapping[str, tuple[int, int]]
"""The places of waiting jobs, and how many jobs wait in their queues, by uid."""
Place = tuple[int, int, bool]
"""A place, how many jobs wait, and whether the place of the job is behind this one."""
PLACES_SECONDS = 2.0
_PLACES: Loads[tuple[Places, Places]] = Loads(PLACES_SECONDS)


@dataclass(frozen=True, slots=True)
class JobsLoaded:
    """What is read for this page alone."""

    past: RecordedJobs
    places: Places
    last: Places = field(default_factory=dict)
    """The last place of each queue that is told, by queue: of long queues, a coordinator tells the first places."""


@dataclass(frozen=True, slots=True)
class ListedJob:
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
    """Read the history of the jobs, and the places of the jobs on the page that wait."""
    asked = filters(parameters)
    # Of other namespaces nobody knows here which jobs there are: they would all be listed as deleted.
    past = history.jobs(visitor, visitor.namespace or asked.namespace, asked.queue)
    return JobsLoaded(past, *_places(visitor, asked, parameters))


def _places(visitor: Visitor, asked: Filters, parameters: Mapping[str, str]) -> tuple[Places, Places]:
    """Return the places of jobs by uid, and the last place of each queue that is told. Which jobs are on the page is
    known from the reading before, and visitors with the same rights share the answer: a row takes from it the place of
    its own job alone."""
    index, reader = INDEXES.newest, visitor.bounds({asked.namespace} - {""}).reader
    nothing: tuple[Places, Places] = {}, {}
    if index is None:
        return nothing
    shown, _ = paging.cut(index.find(reader, asked), PATH, parameters)
    waiting = (each for each in shown if tables.attempt(partial(job_columns.is_in_order, each.item), otherwise=False))
    queues = frozenset(each.queue for each in waiting)

    def read(before: tuple[Places, Places] | None) -> tuple[Places, Places]:
        try:
            told = visitor.queries().places(queues)
            last = {str(each["queue"]): (int(each["position"]), int(each["of"])) for each in told}
            return job_columns.places_by_uid(told), last
        except (*FAILURES, *UNREADABLE):
            return before or nothing

    return _PLACES.get((reader, queues), read) if queues else nothing


def page(asked: Asked) -> Page:
    """Return the page."""
    wanted = filters(asked.parameters)
    query = {name: getattr(wanted, name) for name in Filters.__slots__} | {"page": asked.parameters.get("page", "")}
    index, reader = INDEXES.of(asked.reading), asked.bounds.reader
    shown, pager = paging.cut(index.find(reader, wanted), PATH, query)
    past = [each for each in history.gone(asked.loaded.past, index.by_uid) if _passes(each, wanted)]
    listed = [each for each in past if reader.may_read(str(each.get("namespace")))][: paging.ROWS]
    told = EVERYWHERE if reader.everywhere else asked.bounds  # all who may list all jobs are told all names
    return Page(
        template="jobs",
        title="Jobs",
        sections={
            "problems": tuple(problems(asked)),
            "suggestions": asked.reading.once(("suggestions", told), partial(_suggestions, asked, index)),
            "pager": (Element("pager-jobs", "pager", (pager, "jobs", "" if shown else "No such jobs.")),),
            "jobs": tuple(_ROWS.get(each.uid, each, _place(each, asked.loaded)) for each in shown),
            **_past(listed),
            "past-note": (Element("past-note-text", "text", _past_note(asked.loaded.past, len(listed))),),
        },
        fixed={"filters": wanted, "phases": PHASES},
    )


def _suggestions(asked: Asked, index: JobIndex) -> tuple[Element, ...]:
    """Return the names that the fields of filters suggest."""
    bounds = asked.bounds
    queues = sorted(str(each["metadata"]["name"]) for each in bounds.queues(asked.reading.queues))
    lists = {"namespaces": index.namespaces(bounds.reader), "queues": queues}
    return tuple(Element(name, "names", tuple(names[:MOST_NAMES])) for name, names in lists.items())


def _place(each: IndexedJob, loaded: JobsLoaded) -> Place | None:
    """Return the place of a job; of one whose place is not told, the last place that is, if jobs wait behind it."""
    if each.uid in loaded.places:
        return (*loaded.places[each.uid], False)
    number, waiting = loaded.last.get(each.queue, (0, 0))
    is_behind = number < waiting and tables.attempt(lambda: job_columns.is_in_order(each.item), otherwise=False)
    return (number, waiting, True) if is_behind else None


def _row(each: IndexedJob, place: Place | None) -> Element:
    try:
        row = _cells(each, place)
    except UNREADABLE:
        path = paths.of_job(f"{each.namespace}/{each.name}")
        row = ListedJob(path, each.namespace, each.name, "", "", "", "-", "", "", "-", "the job cannot be read")
    return Element(f"job-{each.uid}", "job", row)


_ROWS = KeptRows(_row)


def _cells(each: IndexedJob, place: Place | None) -> ListedJob:
    item, status = each.item, columns.status_of(each.item)
    number, waiting, is_behind = place or (0, 0, True)
    places = {} if is_behind else {each.uid: (number, waiting)}
    shape = {column.title: column for column in job_columns.job_columns(_ANY_TIME, places)}
    reason = tables.short(shape["REASON"].text(item))
    if place and is_behind:
        reason = f"after {number} of {waiting}" + ("" if reason == "-" else f" ({reason})")
    began = status.get("startTime") or (status.get("admission") or {}).get("admittedAt") or ""
    is_over = bool(status.get("completionTime"))
    return ListedJob(
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
        reason=reason,
    )


def _passes(job: Document, wanted: Filters) -> bool:
    state, why = str(job.get("state", "")), f"{job.get('reason', '')} {job.get('message', '')}"
    return (
        (not wanted.namespace or job.get("namespace") == wanted.namespace)
        and (not wanted.phase or state.casefold() == wanted.phase.casefold())
        and wanted.name.casefold() in str(job.get("name", "")).casefold()
        and wanted.reason.casefold() in why.casefold()
    )


def _past(items: list[Document]) -> Mapping[str, tuple[Element, ...]]:
    """Return the rows of jobs of the history, and the row of their titles."""
    if not items:
        return {"past-head": (), "past": ()}
    shape = history_columns.job_columns(items, UTC_ZONE, everywhere=True)
    shown = [each for each in shape if not each.wide and (each.title in PAST_TITLES or each.title.endswith("-HOURS"))]
    titles = tuple(each.title.capitalize().replace("Gpu", "GPU").replace("Cpu", "CPU") for each in shown)
    found = []
    for job in items:
        row = PastRow(
            path=paths.with_query(paths.of_job(f"{job['namespace']}/{job['name']}"), {"uid": str(job["uid"])}),
            namespace=job["namespace"],
            name=job["name"],
            submitted=job["submitted"],
            cells=tuple(excerpts.excerpt(str(each.text(job)), LONGEST_FILTER) for each in shown),
        )
        found.append(Element(f"past-{job['uid']}", "past_job", row))
    return {"past-head": (Element("past-titles", "past_titles", titles),), "past": tuple(found)}


def _past_note(past: RecordedJobs, shown: int) -> str:
    if past.problem:
        return past.problem
    return "" if shown else "The history has no such jobs that were deleted."
