"""The page of one job: what it does or why it waits, its life, its tasks and pods, its log and its reports."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from zoneinfo import ZoneInfo

from coordinator.dashboard import charts, life, paths
from coordinator.dashboard.acts import buttons
from coordinator.dashboard.asked import Asked
from coordinator.dashboard.charts import Curve
from coordinator.dashboard.elements import Element, Page
from coordinator.dashboard.jobs import heading, links, tables
from coordinator.dashboard.jobs.index import UNREADABLE
from coordinator.dashboard.jobs.log_tail import Tail
from coordinator.dashboard.jobs.reads import DELETED, REPLACED, JobLoaded, JobReads, Point, member
from coordinator.dashboard.jobs.tables import attempt
from coordinator.dashboard.pages.problems import problems
from coordinator.query.questions import Document
from coordinator.runs import in_place
from coordinator.wording import (
    explanations,
    history_columns,
    job_columns,
    job_details,
    job_facts,
    job_growth,
    job_state,
)
from coordinator.wording.explanations import KnownFacts
from crds import excerpts
from crds.errors import InvalidObject
from crds.torchjob import torchjob
from kube.api import Manifest

SECTIONS = (
    *("problems", "notices", "heading", "why", "actions", "life", "facts", "links", "tasks", "short", "pods"),
    *("workloads", "conditions", "events", "notes", "reports", "curves", "result", "log", "log-note"),
)
"""The sections of the page. `actions` is for what changes the job."""
MOST_MEMBERS = 200
"""The most pods that the page offers to choose from."""
LONGEST_RESULT, LONGEST_QUEUE = 16_000, 317
MINUTE = 60.0
UTC_ZONE = ZoneInfo("UTC")
Elements = tuple[Element, ...]
READS = JobReads()
load = READS.load


@dataclass(frozen=True, slots=True)
class Trend:
    """A line of what came since the page was opened."""

    title: str
    first: str
    last: str
    since: str
    curve: Curve


def page(asked: Asked) -> Page:
    """Return the page."""
    namespace, name = asked.parameters["namespace"], asked.parameters["name"]
    loaded: JobLoaded = asked.loaded
    own = paths.with_query(
        paths.of_job(f"{namespace}/{name}"), {"uid": loaded.uid, "pod": asked.parameters.get("pod", "")}
    )
    queue = attempt(lambda: job_state.queue_of(loaded.item or {}), "")[:LONGEST_QUEUE]
    empty: dict[str, Elements] = dict.fromkeys(SECTIONS, ())
    shown = {**empty, **_sections(asked, loaded)}
    return Page(
        template="job",
        title=name,
        sections={**shown, "problems": (*problems(asked), *_problems(asked, loaded))},
        fixed={
            "namespace": namespace,
            "name": name,
            "uid": loaded.uid,
            "stream_address": own,
            "path": paths.of_job(f"{namespace}/{name}"),
            "queue": queue,
            "queue_path": paths.of_queue(queue),
            "members": members(loaded.item) if loaded.item else (),
            "member": _chosen(asked.parameters),
        },
    )


def _chosen(parameters: Mapping[str, str]) -> str:
    selection = member(parameters)
    return f"{selection.task}-{selection.index}" if selection.task else ""


def members(item: Manifest) -> tuple[str, ...]:
    """Return the names of the pods of a job, by task and index, as far as the page offers them."""
    nothing: tuple[str, ...] = ()
    return attempt(lambda: tuple(islice(_members(item), MOST_MEMBERS)), nothing)


def _members(item: Manifest) -> Iterator[str]:
    for name, task in item["spec"]["torchTaskSpecs"].items():
        yield from (f"{name.lower()}-{index}" for index in range(int((task or {}).get("numTasks", 1))))


def _problems(asked: Asked, loaded: JobLoaded) -> Elements:
    """Return what was not read for this page alone. What no page can read is said above all of them."""
    parts = [(part, text) for part, text in loaded.problems.items() if part not in asked.reading.problems]
    return tuple(Element(f"problem-job-{part.replace(' ', '-')}", "problem", (part, text, "")) for part, text in parts)


def _sections(asked: Asked, loaded: JobLoaded) -> Mapping[str, Elements]:
    notices = _notices(asked, loaded)
    if loaded.past is not None:
        return {**_past(loaded.past, asked.reading.at), "notices": notices}
    if loaded.item is None:
        text = f"{asked.parameters['name']} cannot be shown"
        return {"heading": (Element("heading-text", "job_heading", (text, "")),), "notices": notices}
    item, now = loaded.item, asked.reading.at
    if loaded.gone and loaded.known.objects.now is not None:
        now = loaded.known.objects.now.timestamp()
    known = loaded.once(f"minute {now // MINUTE}", lambda: _present(loaded, item, now))
    actions = buttons.of_job(item, may_act=asked.may_act and not loaded.gone)
    lasting = {"notices": notices, "actions": actions, "life": _life(lambda: life.of_job(item, now))}
    told = {**known, **lasting, **_log(loaded.tail)}
    return {**told, **({"heading": _gone(asked.parameters["name"])} if loaded.gone else {})}


def _gone(name: str) -> Elements:
    return (Element("heading-text", "job_heading", (f"{tables.short(name)} was deleted", "Deleted")),)


def _notices(asked: Asked, loaded: JobLoaded) -> Elements:
    path = paths.of_job(f"{asked.parameters['namespace']}/{asked.parameters['name']}")
    found = []
    if loaded.gone == DELETED:
        found.append(("deleted", "This job is deleted. The page shows what was known of it last.", ""))
    if loaded.gone == REPLACED:
        text = "This job is deleted, and another job has its name now. The page shows the deleted one."
        found.append(("replaced", text, path))
    if loaded.item is not None and (invalid := _invalid(loaded.item)):
        found.append(("invalid", f"This job is invalid: {invalid}", ""))
    return tuple(Element(f"notice-{name}", "job_notice", (text, address)) for name, text, address in found)


def _invalid(item: Manifest) -> str:
    try:
        torchjob.parse(item)
    except InvalidObject as error:
        return tables.short(error)
    except UNREADABLE as error:
        return tables.short(f"{type(error).__name__}: {error}")
    return ""


def _present(loaded: JobLoaded, item: Manifest, now: float) -> Mapping[str, Elements]:
    """Return what is shown of a job of the API server, beside what moves with the time."""
    known = loaded.known
    why = attempt(lambda: explanations.describe(item, known), None)
    title = attempt(lambda: heading.of_job(item, why or {}), str(item["metadata"].get("name", "")))
    phase = attempt(lambda: job_columns.phase(item), "")
    details: Document = attempt(lambda: _details(item, known, now), {})
    sentences: list[str] = attempt(lambda: list(explanations.sentences(why)), []) if why else []
    return {
        "heading": (Element("heading-text", "job_heading", (tables.short(title), phase)),),
        "why": tables.lines("why", sentences),
        "facts": tables.facts("fact", attempt(lambda: [*job_facts.facts(item, details)], [])),
        "links": _links(item),
        "tasks": tables.rows("task", partial(job_facts.tasks, details)),
        "short": tables.lines("short", attempt(lambda: job_facts.blockers(details), [])),
        "pods": tables.rows("pod", lambda: job_facts.pods(known.objects.pods, wide=True)),
        "workloads": tables.rows("workload", partial(job_facts.workloads, details)),
        "conditions": tables.rows("condition", lambda: job_facts.conditions(item)),
        "events": tables.rows("event", partial(job_facts.events, details)),
        "notes": tables.lines("note", _notes(details)),
        "reports": tables.rows("report", lambda: tables.reports(known.training)),
        "curves": _curves(loaded.points),
        "result": _result(item),
    }


def _details(item: Manifest, known: KnownFacts, now: float) -> Document:
    """Return the document of `torchq job show`. How much the job has held is that of the last full minute, so that the
    page does not change each second."""
    objects = known.objects
    minute = replace(objects, now=datetime.fromtimestamp(now - now % MINUTE, UTC))
    return job_details.describe(item, objects) | {
        "held": job_details.describe(item, replace(minute, pods=(), events=(), groups=()))["held"],
        "workers": known.rest,
        "size": job_growth.size_of(item),
        "training": known.training,
        "silence": "",
    }


def _notes(details: Document) -> list[str]:
    """Return the notes about what was not read. Pages do not know whether the cluster is a local one,
    whose node restarts containers in place, so nothing is said about that."""
    ours = [str(each).removeprefix("note: ") for each in details.get("notes") or ()]
    return [each for each in ours if not each.startswith(in_place.FIELD)]


def _life(make: Callable[[], life.Life | None]) -> Elements:
    found = attempt(make, None)
    return () if found is None else (Element("life-bar", "life", found),)


def _links(item: Manifest) -> Elements:
    found = attempt(lambda: links.read(item), links.Links())
    shown = [Element(f"link-{number}", "job_link", each) for number, each in enumerate(found.shown)]
    return (*shown, *(Element(f"no-link-{number}", "line", text) for number, text in enumerate(found.left_out)))


def _curves(points: tuple[Point, ...]) -> Elements:
    """Return lines of the speed and the loss, and if there are none of the step."""
    shown = {"Speed": [(each.at, each.speed) for each in points], "Loss": [(each.at, each.loss) for each in points]}
    known = {
        title: [(at, value) for at, value in found if isinstance(value, int | float)] for title, found in shown.items()
    }
    if not any(known.values()):
        known = {"Step": [(each.at, float(each.step)) for each in points]}
    return tuple(_curve(title, found) for title, found in known.items() if len(found) > 1)


def _curve(title: str, found: list[tuple[str, float]]) -> Element:
    (since, first), (_, last) = found[0], found[-1]
    unit = " steps/s" if title == "Speed" else ""
    label = f"{title}: from {first:.4g} to {last:.4g}{unit} in {len(found)} reports"
    curve = charts.trend([value for _, value in found], label)
    return Element(f"curve-{title.lower()}", "trend", Trend(title, f"{first:.4g}", f"{last:.4g}{unit}", since, curve))


def _result(item: Manifest) -> Elements:
    text = attempt(lambda: str((item.get("status") or {}).get("result") or ""), "")
    if not text:
        return ()
    cut = f"{text[:LONGEST_RESULT]} {excerpts.ELLIPSIS}" if len(text) > LONGEST_RESULT else text
    return (Element("result-text", "result", cut),)


def _log(tail: Tail) -> Mapping[str, Elements]:
    lines = tuple(Element(f"line-{each.number}", "log_line", each) for each in tail.lines)
    # The first look begins to read the log, so a page without the script has to say that there may be more.
    nothing = "there is no output" if tail.is_over else "nothing is read of the log yet"
    note = tail.problem or ("" if lines else nothing)
    return {"log": lines, "log-note": (Element("log-note-text", "text", tables.short(note)),) if note else ()}


def _past(past: Document, now: float) -> Mapping[str, Elements]:
    """Return what the history has of a job that is deleted."""
    return {
        "heading": _gone(str(past.get("name", ""))),
        "life": _life(lambda: life.of_history(past, now)),
        "facts": tables.facts("fact", attempt(lambda: history_columns.job_facts(past, UTC_ZONE), [])),
        "notes": tables.lines("note", attempt(lambda: history_columns.other_jobs(past, UTC_ZONE), [])),
    }
