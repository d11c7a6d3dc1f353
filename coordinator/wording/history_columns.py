"""The columns and lines of the history and of usage, over the documents of `coordinator.query.history_answers`.

One rule: a column shows one value and never changes its place. Hours are those of GPUs; where nothing in a list has
held a GPU, those of CPUs, else those of pods.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import tzinfo
from typing import Any

from coordinator.query.questions import Document
from coordinator.wording import ages
from coordinator.wording.amounts import format_amounts
from coordinator.wording.columns import TableColumn, TextTable
from crds import excerpts, timestamps
from crds.resources.amounts import JOBS, PODS
from history import prices, usage

LONGEST_WHY = 80
LEAST_HOURS = 0.01
OTHERS = "others"
"""The name of what all others have used, of whom the reader knows no names."""
POD = "POD"
NOTHING_HELD = "no job has held room in this time"
MOST_GAPS = 3
"""The most gaps that the line of the cluster names."""


def stamp(text: str | None, zone: tzinfo, form: str = "%Y-%m-%d %H:%M") -> str:
    """Format a time in a zone, to the minute."""
    return "-" if text is None else timestamps.parse(text).astimezone(zone).strftime(form)


def _second(text: str | None, zone: tzinfo) -> str:
    """Format a time in a zone, to the second."""
    return stamp(text, zone, "%Y-%m-%d %H:%M:%S")


def hours(value: float | None) -> str:
    """Format hours to a hundredth; less than that to two digits."""
    if not value:
        return "-" if value is None else "0"
    return f"{value:.2f}" if value >= LEAST_HOURS else f"{value:.2g}"


def job_columns(items: Sequence[Document], zone: tzinfo, *, everywhere: bool) -> tuple[TableColumn, ...]:
    """Return the columns of jobs of the history."""
    unit, of_unit = _unit([item["held"] for item in items])
    return (
        TableColumn("NAME", _full_name if everywhere else lambda job: job["name"]),
        TableColumn("QUEUE", lambda job: job["queue"] or "-"),
        TableColumn("OUTCOME", outcome),
        TableColumn("SUBMITTED", lambda job: stamp(job["submitted"], zone), lambda job: job["submitted"]),
        _duration("WAITED", "waitedSeconds"),
        TableColumn("HELD", _held, lambda job: job["heldSeconds"]),
        TableColumn(f"{unit}-HOURS", lambda job: hours(of_unit(job["held"])), lambda job: of_unit(job["held"])),
        TableColumn("RESTARTS", lambda job: job["restarts"], lambda job: job["restarts"]),
        TableColumn("WHY", lambda job: excerpts.excerpt(excerpts.one_line(why(job)), LONGEST_WHY), why),
        TableColumn("USER", lambda job: job["user"] or "-", wide=True),
        TableColumn("ENDED", lambda job: stamp(job["ended"], zone), lambda job: job["ended"], wide=True),
        TableColumn("ATTEMPTS", lambda job: job["attempts"], lambda job: job["attempts"], wide=True),
        TableColumn("DISRUPTIONS", lambda job: job["disruptions"], lambda job: job["disruptions"], wide=True),
        *_resources([item["held"] for item in items], lambda job: job["held"]),
        TableColumn("UID", lambda job: job["uid"], wide=True),
    )


def _full_name(job: Document) -> str:
    return f"{job['namespace']}/{job['name']}"


def outcome(job: Document) -> str:
    """Return how a job ended, with a mark if nobody saw it, or what the job does."""
    return f"{job['state']}{' ~' if job['isApproximate'] else ''}"


def why(job: Document) -> str:
    """Return why a job has ended so, or why it waits."""
    known_to = job["endKnownToSeconds"]
    text = "" if job["state"] in ("Succeeded", "Running") else str(job["message"] or job["reason"])
    if known_to is None:
        return text or "-"
    return f"{text or job['state'].lower()}; its end is known to {ages.duration(known_to)}"


def _held(job: Document) -> str:
    return ages.duration(job["heldSeconds"]) if job["holdCount"] else "-"


def _duration(title: str, name: str) -> TableColumn:
    return TableColumn(title, lambda item: ages.duration(item[name]), lambda item: item[name])


def _unit(amounts: Sequence[Document]) -> tuple[str, Callable[[Document], float]]:
    """Return what hours are counted in, and the function that returns the hours of a document of amounts."""
    units: Sequence[tuple[str, Callable[[Document], float]]] = (
        ("GPU", lambda each: float(each["gpuHours"])),
        ("CPU", lambda each: float(each["cpuHours"])),
        (POD, lambda each: float(each["hours"].get(PODS, 0.0))),
    )
    return next((unit for unit in units if any(map(unit[1], amounts))), units[0])


def _resources(amounts: Sequence[Document], of: Callable[[Document], Document]) -> Iterator[TableColumn]:
    """Yield a column for each resource that was held, for `-o wide`."""
    for name in sorted({name for each in amounts for name in each["hours"]} - {JOBS}):
        yield _resource(name, of)


def _resource(name: str, of: Callable[[Document], Document]) -> TableColumn:
    def read(item: Document) -> float:
        return float(of(item)["hours"].get(name, 0.0))

    unit = "GIB-HOURS" if prices.is_bytes(name) else "HOURS"
    return TableColumn(f"{name.upper()} {unit}", lambda item: hours(read(item)), read, wide=True)


def job_facts(job: Document, zone: tzinfo) -> list[tuple[str, object]]:
    """Return what is known of one job, each with its title."""
    unit, of_unit = _unit([job["held"]])
    attempts = job["attempts"]
    return [
        ("Job", f"{_full_name(job)} (uid {job['uid']})"),
        ("Queue", job["queue"] or "-"),
        ("User", job["user"] or "not known"),
        ("Outcome", f"{job['state']} (its end was not seen)" if job["isApproximate"] else job["state"]),
        ("Why", why(job)),
        ("Submitted", _second(job["submitted"], zone)),
        ("Ended", _second(job["ended"], zone)),
        ("Waited", ages.duration(job["waitedSeconds"])),
        (
            "Held",
            f"{_held(job)}, {hours(of_unit(job['held']))} {_in_words(unit)}-hours in {_count(attempts, 'attempt')}"
            f"{_newest(job['holdCount'], job['holds'], 'holds')}",
        ),
        ("Restarts", f"{job['restarts']}, and {_count(job['disruptions'], 'disruption')}"),
        ("Result", excerpts.excerpt(job["result"], 10 * LONGEST_WHY) or "-"),
    ]


def holds(job: Document, zone: tzinfo) -> TextTable:
    """Return the times for which a job has held room."""
    unit, of_unit = _unit([job["held"]])
    return TextTable(_hold_titles(unit), [_hold_row(each, zone, of_unit) for each in job["holds"]])


def later_pods(job: Document, zone: tzinfo) -> TextTable:
    """Return the pods that went on after the job."""
    unit, of_unit = _unit([job["held"]])
    return TextTable(_pod_titles(unit), [_pod_row(each, zone, of_unit) for each in job["pods"]])


def later_pods_title(job: Document) -> str:
    """Return the sentence above the pods that went on after the job."""
    return f"{_count(job['podCount'], 'pod')} went on after the job{_newest(job['podCount'], job['pods'], 'pods')}:"


def other_jobs(job: Document, zone: tzinfo) -> list[str]:
    """Return a line for each other job of the same name below a line that counts them; empty if there are none."""
    listed, count = job["others"], job["otherCount"]
    more = f"; the newest {len(listed)}, `torchq history -o csv` has all" if count > len(listed) else ""
    names = [
        f"{job['name']}/{each['uid']} of {stamp(each['submitted'], zone)} ({each['outcome'] or 'not ended'})"
        for each in listed
    ]
    return [f"{_count(count, 'other job')} of this name{more}:", *names] if names else []


def _newest(count: int, listed: Sequence[Document], noun: str) -> str:
    return f" (the newest {len(listed)} of {count} {noun} are listed)" if count > len(listed) else ""


def _in_words(unit: str) -> str:
    return "pod" if unit == POD else unit


def _hold_titles(unit: str) -> Sequence[str]:
    return ("HOLD", "QUEUE", "ATTEMPT", "WORKERS", "FROM", "TO", "HELD", f"{unit}-HOURS", "ENDED", "CHARGE")


def _pod_titles(unit: str) -> Sequence[str]:
    return ("QUEUE", "FROM", "TO", f"{unit}-HOURS", "CHARGE")


def _hold_row(hold: Document, zone: tzinfo, of_unit: Callable[[Document], float]) -> Sequence[object]:
    charge = format_amounts(hold["charge"]) if hold["charge"] else "several"
    idle = f" (idle growth: {format_amounts(hold['unpaid'])})" if hold["unpaid"] else ""
    others = f" and {hold['otherResources']} more" if hold["otherResources"] else ""
    return (
        hold["numbers"],
        hold["queue"],
        hold["attempt"],
        hold["workers"] or "all",
        _second(hold["from"], zone),
        f"{_second(hold['to'], zone)}{' ~' if hold['isApproximate'] else ''}",
        ages.duration(hold["heldSeconds"]),
        hours(of_unit(hold["held"])),
        hold["ended"] or "-",
        f"{charge}{others}{idle}",
    )


def _pod_row(pod: Document, zone: tzinfo, of_unit: Callable[[Document], float]) -> Sequence[object]:
    ended = f"{_second(pod['to'], zone)}{' ~' if pod['isApproximate'] else ''}"
    charge = format_amounts(pod["charge"])
    return pod["queue"], _second(pod["from"], zone), ended, hours(of_unit(pod["held"])), charge


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def usage_columns(document: Document) -> tuple[TableColumn, ...]:
    """Return the columns of usage."""
    lines = usage_lines(document)
    unit, of_unit = _unit([each["held"] for each in lines])
    has_targets = document["by"] == "queue"
    return (
        TableColumn(document["by"].upper(), lambda line: line["name"] or "-"),
        TableColumn("JOBS", lambda line: line["jobs"], lambda line: line["jobs"]),
        _hours_column(f"{unit}-HOURS", "held", of_unit),
        _percents("SHARE", "sharePercent"),
        *([_percents("TARGET", "targetPercent")] if has_targets else []),
        _hours_column("IDLE GROWTH", "idleGrowth", of_unit),
        TableColumn("PRICE", lambda line: _price(line["price"]), lambda line: line["price"]),
        TableColumn("WAIT P50", lambda line: ages.duration(_wait(line, "p50")), lambda line: _wait(line, "p50")),
        TableColumn("P95", lambda line: ages.duration(_wait(line, "p95")), lambda line: _wait(line, "p95")),
        _hours_column(f"FAILED {unit}-HOURS", "failed", of_unit),
        *_resources([each["held"] for each in lines], lambda line: line["held"]),
    )


def usage_lines(document: Document) -> list[Document]:
    """Return the groups, and what others have used as the last one."""
    others = document["others"]
    return [*document["items"], *([others | {"name": OTHERS}] if others else [])]


def _hours_column(title: str, name: str, of_unit: Callable[[Document], float]) -> TableColumn:
    return TableColumn(title, lambda line: hours(of_unit(line[name])), lambda line: of_unit(line[name]))


def _percents(title: str, name: str) -> TableColumn:
    def text(line: Document) -> str:
        return "-" if line[name] is None else f"{line[name]}%"

    return TableColumn(title, text, lambda line: line[name])


def _price(price: float | None) -> str:
    return "-" if price is None else f"{price:.2f}"


def _wait(line: Document, name: str) -> int | None:
    waits: dict[str, int] | None = line["waitSeconds"]
    return None if waits is None else waits[name]


def cluster_line(document: Document, zone: tzinfo) -> str:
    """Return in one line what became of the pool, and when nothing was recorded."""
    parts = [_pool(document["cluster"], document["from"], zone), _gaps(document, zone)]
    return "cluster: " + "; ".join(filter(None, parts))


def _pool(cluster: Document | None, since: str, zone: tzinfo) -> str:
    if cluster is None:
        return "how many GPUs or CPUs the pool had is not known for this time"
    part: dict[str, Any] = cluster["percents"]
    unit = "GPU" if cluster["resource"] == usage.GPUS else "CPU"
    known = f" since {stamp(cluster['from'], zone)}" if cluster["from"] != since else ""
    return (
        f"{hours(cluster['offeredHours'])} {unit}-hours{known}; {part['paid']}% paid, "
        f"{part['idleGrowth']}% idle growth, {part['idleWhileWaiting']}% idle while jobs waited, {part['idle']}% idle"
    )


def _gaps(document: Document, zone: tzinfo) -> str:
    gaps = document["gaps"]
    texts = [_gap(gap, zone) for gap in gaps[-MOST_GAPS:]]
    others = max(0, len(gaps) - MOST_GAPS) + document["otherGaps"]
    return f"not recorded: {', '.join(texts)}{f', and {others} earlier times' if others else ''}" if texts else ""


def _gap(gap: Document, zone: tzinfo) -> str:
    start, end = stamp(gap["from"], zone), stamp(gap["to"], zone)
    if start == end:
        start, end = _second(gap["from"], zone), _second(gap["to"], zone)
    day, _, time = end.partition(" ")
    return f"{start} to {time if start.startswith(day) else end}"
