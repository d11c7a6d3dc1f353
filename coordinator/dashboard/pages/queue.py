"""The page of one queue: its settings and figures, its jobs in their order, and what it did in the last day."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from urllib.parse import urlencode

from coordinator.dashboard import charts, moments, paging, paths, readings
from coordinator.dashboard.acts import buttons
from coordinator.dashboard.asked import Asked
from coordinator.dashboard.charts import Bar
from coordinator.dashboard.elements import Element, Page
from coordinator.dashboard.jobs import tables
from coordinator.dashboard.jobs.index import INDEXES, Filters, IndexedJob
from coordinator.dashboard.loads import Loads
from coordinator.dashboard.pages import amounts, queue_history
from coordinator.dashboard.pages.problems import problems
from coordinator.dashboard.pages.queue_history import Past
from coordinator.dashboard.readings import FAILURES
from coordinator.dashboard.visitors import Visitor
from coordinator.query.questions import UNKNOWN_PREFIX, Document, UnknownObject
from coordinator.wording import job_columns, job_state, queue_columns, queue_facts, room_holders
from coordinator.wording.columns import status_of
from crds.api_resources import TENANT_QUEUES
from kube import errors

EVERY_SECONDS = 2.0
"""How often the order of the jobs of one queue is read for a visitor."""
ELSEWHERE = ("Name", "State", "Share", "Target", "Age", "Oldest", "Waiting since")
"""Facts that the page shows otherwise: waits as the times at which they began."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHAPE = MappingProxyType({column.title: column for column in job_columns.job_columns(_EPOCH, {})})
Places = tuple[tuple[str, int, int], ...]
"""The uids of waiting jobs, in their order, each with its place and the number of the jobs that wait."""


@dataclass(frozen=True, slots=True)
class Now:
    """What is read of a queue again and again."""

    item: Document | None = None
    """The TenantQueue; None if there is none, or the visitor may not read it."""
    figures: Document | None = None
    """The queue as a coordinator tells it; None if no coordinator knows it."""
    places: Places = ()
    is_unknown: bool = False
    """Whether neither the API server nor a coordinator has such a queue."""
    problem: str = ""
    """What does not answer."""


@dataclass(frozen=True, slots=True)
class QueueLoaded:
    """What is read for this page alone."""

    now: Now
    past: Past


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job of the queue, as a row shows it."""

    place: str
    name: str
    address: str
    phase: str
    pods: str
    since: str
    """Since when it waits, or holds room."""
    reason: str


@dataclass(frozen=True, slots=True)
class Gauge:
    """A bar with its title."""

    name: str
    text: str
    bar: Bar


_NOW: Loads[Now] = Loads(EVERY_SECONDS)


def load(visitor: Visitor, parameters: Mapping[str, str]) -> QueueLoaded:
    """Read the queue, its order, and, once a minute, its last day. Raises UnknownObject for a queue that does not
    exist, or of which the visitor is told nothing."""
    name = parameters["name"]
    if not visitor.bounds(()).shows(name):
        raise UnknownObject(f"{UNKNOWN_PREFIX}queue {name}")
    now = _NOW.get((visitor.secret, name), lambda _: _read(visitor, name))
    if now.is_unknown:
        raise UnknownObject(f"{UNKNOWN_PREFIX}queue {name}")
    return QueueLoaded(now, queue_history.read(visitor, name))


def expire(visitor: Visitor, name: str) -> None:
    """Let a queue be read again, as the visitor has just changed it."""
    _NOW.expire((visitor.secret, name))


def _read(visitor: Visitor, name: str) -> Now:
    found = Now()
    missing = 0
    try:
        found = replace(found, item=visitor.cluster.get(TENANT_QUEUES, name))
    except errors.NotFound:
        missing += 1
    except FAILURES as error:
        found = replace(found, problem=str(error))
    try:
        queries = visitor.queries()
        found = replace(found, places=tuple(map(_place, queries.places([name]))))
        found = replace(found, figures=queries.queue(name))
    except UnknownObject:
        missing += 1
    except FAILURES as error:
        found = replace(found, problem=str(error))
    return replace(found, is_unknown=missing == 2)


def _place(item: Document) -> tuple[str, int, int]:
    return str(item["uid"]), int(item["position"]), int(item["of"])


def page(asked: Asked) -> Page:
    """Return the page."""
    name, loaded = asked.parameters["name"], asked.loaded
    queue = _queue(asked, name, loaded.now)
    waiting, admitted = _jobs(asked, name, loaded.now.places)
    path, query = paths.of_queue(name), asked.query("page", "admitted")
    next_rows, next_pager = paging.cut(waiting, path, query)
    room_rows, room_pager = paging.cut(admitted, path, query, "admitted")
    places = {uid: place for uid, place, _ in loaded.now.places}
    behind = _behind(loaded.now.places)
    return Page(
        template="queue",
        title=f"Queue {name}",
        sections={
            "problems": tuple(problems(asked)),
            "queue-state": _state(queue),
            "actions": buttons.of_queue(loaded.now.item, may_act=asked.may_act),
            "facts": tuple(_facts(asked, name, queue)),
            "gauges": tuple(_gauges(queue)),
            "waiting": tuple(Element(f"job-{each.uid}", "queued", _row(each, places, behind)) for each in next_rows),
            "waiting-pager": (
                Element("waiting-pages", "pager", (next_pager, "waiting jobs", _none(asked, waiting, "waits"))),
            ),
            "admitted": tuple(Element(f"held-{each.uid}", "holding", _row(each, places)) for each in room_rows),
            "admitted-pager": (
                Element("admitted-pages", "pager", (room_pager, "admitted jobs", _none(asked, admitted, "holds room"))),
            ),
            **queue_history.sections(loaded.past, asked.bounds.reader),
            "notes": tables.lines("note", _notes(loaded.now, queue)),
        },
        fixed=MappingProxyType({"name": name, "jobs_address": f"/jobs?{urlencode({'queue': name})}"}),
    )


def _queue(asked: Asked, name: str, now: Now) -> Document:
    """Return the queue with the newest figures that are known."""
    figures = asked.reading.once("queues by name", lambda: {q["metadata"]["name"]: q for q in asked.reading.queues})
    told = figures.get(name) or now.figures
    item = now.item or told or {"metadata": {"name": name}, "spec": {}, "status": {}}
    status = {**status_of(item), **(asked.bounds.queue(told)["status"] if told else {})}
    holders = {key: value for key, value in _told(asked, now.figures).items() if key in ("holders", "otherHolders")}
    return item | {"status": status | holders}


def _told(asked: Asked, figures: Document | None) -> Document:
    return status_of(asked.bounds.queue(figures)) if figures else {}


def _state(queue: Document) -> tuple[Element, ...]:
    return (Element("queue-state-now", "state", queue_columns.queue_state(queue)),)


def _facts(asked: Asked, name: str, queue: Document) -> Iterator[Element]:
    oldest = moments.stamp(asked.reading.began.get(readings.queue_wait(name)))
    nothing: list[tuple[str, object]] = []
    found = tables.attempt(lambda: list(queue_facts.facts(queue, _EPOCH)), nothing)
    kept = [each for each in found if each[0] not in ELSEWHERE]
    created = queue["metadata"].get("creationTimestamp")
    kept += [("Created", created)] if created else []
    kept += [("Oldest waits since", oldest)] if oldest else []
    yield from tables.facts("fact", kept)


def _notes(now: Now, queue: Document) -> list[str]:
    held = tables.attempt(lambda: room_holders.format_holders(status_of(queue)), "")
    return [*([f"Held by {held}."] if held else []), *([now.problem] if now.problem else [])]


def _gauges(queue: Document) -> Iterator[Element]:
    share, target = (str(status_of(queue).get(each) or "-") for each in ("share", "target"))
    words = f"share {share}, target {target}"
    bar = charts.share_bar(queue_columns.part(queue, "share"), queue_columns.part(queue, "target"), words)
    yield Element("gauge-share", "pool", Gauge("Share", f"{share}, target {target}", bar))
    for number, name in enumerate(amounts.limited(queue)[: tables.MOST_ROWS]):
        use = amounts.of_queue(queue, [name])
        bar = charts.quota_bar(use.used, use.idle, use.quota, None, f"{name}: {use.sentence}")
        yield Element(f"gauge-{number}", "pool", Gauge(name, use.text, bar))


def _jobs(asked: Asked, name: str, places: Places) -> tuple[Sequence[IndexedJob], Sequence[IndexedJob]]:
    """Return the jobs of a queue that the visitor may read: those that wait, in their order, then those that have no
    place in it; and those that hold room, the newest first."""
    reader = asked.bounds.reader

    def arrange() -> tuple[Sequence[IndexedJob], Sequence[IndexedJob]]:
        every = [*INDEXES.of(asked.reading).find(reader, Filters(queue=name))]
        open_jobs = [each for each in every if not _is_over(each)]
        admitted = [each for each in open_jobs if job_state.is_admitted(each.item)]
        waiting = [each for each in reversed(open_jobs) if not job_state.is_admitted(each.item)]
        order = {uid: place for uid, place, _ in places}
        last = max(order.values(), default=0) + 1
        in_order = {each.uid: job_columns.is_in_order(each.item) for each in waiting}
        waiting.sort(key=lambda each: (order.get(each.uid, last), not in_order[each.uid]))
        return waiting, admitted

    return asked.reading.once_for_jobs(("jobs of a queue", name, reader, places), arrange)


def _is_over(job: IndexedJob) -> bool:
    return tables.attempt(lambda: job_state.is_finished(job.item), otherwise=True)


def _behind(places: Places) -> str:
    """Return the place of a job in the order whose place is not told: of long queues, a coordinator tells the first
    places."""
    number, waiting = max(((place, of) for _, place, of in places), default=(0, 0))
    return f"after {number}" if number < waiting else "-"


def _row(job: IndexedJob, places: Mapping[str, int], behind: str = "-") -> QueuedJob:
    is_in_order = tables.attempt(lambda: job_columns.is_in_order(job.item), otherwise=False)
    full_name = f"{job.namespace}/{job.name}"
    admitted = tables.attempt(lambda: (status_of(job.item).get("admission") or {}).get("admittedAt"), None)
    created = job.item["metadata"].get("creationTimestamp")
    return QueuedJob(
        place=str(places.get(job.uid) or (behind if is_in_order else "-")),
        name=full_name,
        address=paths.of_job(full_name),
        phase=job.phase,
        pods=tables.attempt(lambda: str(_SHAPE["PODS"].text(job.item)), "-"),
        since=str(admitted or created or ""),
        reason=tables.short(job.reason) or "-",
    )


def _none(asked: Asked, jobs: Sequence[IndexedJob], does: str) -> str:
    whose = "" if asked.bounds.reader.everywhere else " that you may see"
    return "" if jobs else f"No job{whose} {does}."
