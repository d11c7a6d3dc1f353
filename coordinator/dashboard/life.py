"""The life of a job as a bar in time: it waited, it held room, it ran; marks are restarts and resizes.

One rule: pure, and the bar moves in small steps only: the present end of a job that goes on is rounded up, so that a
picture is drawn again a few hundred times in a life and not once a second.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from coordinator.follow.endings import true_condition
from coordinator.query.questions import Document
from coordinator.wording import ages, job_state
from crds import excerpts, timestamps
from crds.torchjob.tasks import WORKER
from kube.api import Manifest

WIDTH = 1_000
"""The width of the bar, in units of the picture."""
STEPS = 240
"""In how many steps the end of a life that goes on moves over the whole bar."""
WAITED, HELD, RAN = "waited", "held room", "ran"
SUSPENDED = "suspended"
RESTART, RESIZE = "restart", "resize"
MOST_SPANS = 64


@dataclass(frozen=True, slots=True)
class Stay:
    """A time for which a job held room, in seconds since 1970."""

    start: float
    end: float | None
    """None: it holds the room now."""
    running: float | None
    """When its pods ran first."""
    workers: int
    ended: str = ""
    numbers: str = ""
    """The number of the hold; of several holds together, all of their numbers."""


Pause = tuple[float, float | None]
"""A time for which a job was suspended; without an end, until it held room again."""
Part = tuple[str, float, float | None, Stay | None]
"""What a job did from a time to another, or up to now."""


@dataclass(frozen=True, slots=True)
class LifeSpan:
    """A part of the bar."""

    kind: str
    start: str
    end: str
    """The time of the end; empty if the job goes on."""
    left: float
    width: float
    height: float
    """From 0 to 1: the part of the most workers that the job ever had."""
    workers: int
    ended: str


@dataclass(frozen=True, slots=True)
class LifeMark:
    """A restart or a resize."""

    kind: str
    at: str
    left: float
    text: str


@dataclass(frozen=True, slots=True)
class Life:
    """What the bar shows."""

    spans: tuple[LifeSpan, ...]
    marks: tuple[LifeMark, ...]
    begin: str
    end: str
    """The time of the job's end; empty if it goes on."""
    summary: str
    """The same in words."""


def of_job(item: Manifest, now: float) -> Life | None:
    """Return the life of a job as its status tells it; None if the job does not say when it was created. `now` is in
    seconds since 1970."""
    status = item.get("status") or {}
    created = timestamps.seconds_or_none(item["metadata"].get("creationTimestamp"))
    if created is None:
        return None
    end = timestamps.seconds_or_none(status.get("completionTime")) if job_state.is_finished(item) else None
    usual = _usual_workers(item)
    stays = [stay for each in status.get("holds") or () if (stay := _stay(each, usual))]
    admission = status.get("admission") or {}
    admitted = timestamps.seconds_or_none(admission.get("admittedAt"))
    if admitted is not None and end is None:
        # A job that was resized holds its room since then: the time before is a hold of its own.
        since = max([admitted, *(stay.end for stay in stays if stay.end and stay.end >= admitted)])
        running = timestamps.seconds_or_none(admission.get("running"))
        stays.append(Stay(since, None, running, admission.get("workers") or usual))
    suspended = (each for each in status.get("conditions") or () if each.get("type") == "Suspended")
    pauses = _pauses(stays, next(suspended, {}))
    return _life(created, end, stays, pauses, [*_marks(item, stays)], now)


def of_history(job: Document, now: float) -> Life | None:
    """Return the life of a job as the history tells it."""
    created, end = (timestamps.seconds_or_none(job.get(name)) for name in ("submitted", "ended"))
    if created is None:
        return None
    stays = [stay for each in job.get("holds") or () if (stay := _stay(each, 1))]
    return _life(created, end, stays, _pauses(stays, {}), [*_marks_between(stays)], now)


def _usual_workers(item: Manifest) -> int:
    """Return the number of pods of a job that was granted all of its workers: its workers, else all of its pods."""
    tasks = {name: task or {} for name, task in (item["spec"].get("torchTaskSpecs") or {}).items()}
    counts = {name: task.get("numTasks", 1) for name, task in tasks.items()}
    return int(counts.get(WORKER) or sum(counts.values()) or 1)


def _stay(hold: Document, usual: int) -> Stay | None:
    start, end, running = (timestamps.seconds_or_none(hold.get(name)) for name in ("from", "to", "running"))
    if start is None:
        return None
    numbers = str(hold.get("numbers") or hold.get("number") or "")
    return Stay(start, end, running, hold.get("workers") or usual, str(hold.get("ended") or ""), numbers)


def _pauses(stays: Sequence[Stay], condition: Document) -> list[Pause]:
    """Return the times for which a job was suspended, each without an end if nobody says when it was resumed: the
    status has that of the last time alone."""
    starts = [stay.end for stay in stays if stay.ended == "Suspended" and stay.end is not None]
    changed = timestamps.seconds_or_none(condition.get("lastTransitionTime"))
    if changed is None:
        return [(start, None) for start in starts]
    if condition.get("status") == "True":
        return [(start, None) for start in [*starts, changed]]
    last = max((start for start in starts if start <= changed), default=None)
    return [(start, changed if start == last else None) for start in starts]


def _marks(item: Manifest, stays: Sequence[Stay]) -> Iterator[tuple[str, float, str]]:
    between = [*_marks_between(stays)]
    yield from between
    status = item.get("status") or {}
    resized = timestamps.seconds_or_none((status.get("resized") or {}).get("at"))
    if resized is not None and resized not in [at for _, at, _ in between]:
        yield RESIZE, resized, "the last change of the number of workers ended"
    count = max(status.get("restartGeneration", 0), status.get("restartCount", 0) + status.get("disruptions", 0))
    running = true_condition(item, "Running")
    again = timestamps.seconds_or_none(running.get("lastTransitionTime"))
    began = timestamps.seconds_or_none((status.get("admission") or {}).get("running"))
    if count and again is not None and (began is None or again > began):
        yield RESTART, again, f"runs again, after {count} restart{'' if count == 1 else 's'} in all"


def _marks_between(stays: Sequence[Stay]) -> Iterator[tuple[str, float, str]]:
    ordered = sorted(stays, key=lambda stay: stay.start)
    for before, after in pairwise(ordered):
        if before.end == after.start and before.workers != after.workers:
            yield RESIZE, after.start, f"from {before.workers} to {after.workers} workers"
        elif before.end != after.start:
            yield RESTART, after.start, f"admitted again{f' after {before.ended}' if before.ended else ''}"


def _life(
    created: float,
    end: float | None,
    stays: Sequence[Stay],
    pauses: Sequence[Pause],
    marks: Sequence[tuple[str, float, str]],
    now: float,
) -> Life:
    until = end if end is not None else _stepped(created, max([now, *(stay.start for stay in stays)]))
    whole = max(until - created, 1.0)
    most = max((stay.workers for stay in stays), default=1)

    def left(moment: float) -> float:
        return round(min(max((moment - created) / whole, 0.0), 1.0) * WIDTH, 1)

    def span(kind: str, start: float, stop: float | None, stay: Stay | None) -> LifeSpan:
        begin = left(start)
        return LifeSpan(
            kind=kind,
            start=timestamps.format_time(start),
            end="" if stop is None else timestamps.format_time(stop),
            left=begin,
            width=round(left(until if stop is None else stop) - begin, 1),
            height=round(max(stay.workers / most, 0.1), 3) if stay else 0.1,
            workers=stay.workers if stay else 0,
            ended=stay.ended if stay else "",
        )

    parts = [*_parts(created, end, sorted(stays, key=lambda stay: stay.start), sorted(pauses))][-MOST_SPANS:]
    return Life(
        spans=tuple(span(*part) for part in parts),
        marks=tuple(LifeMark(kind, timestamps.format_time(at), left(at), text) for kind, at, text in marks),
        begin=timestamps.format_time(created),
        end="" if end is None else timestamps.format_time(end),
        summary=_summary(parts, until, marks),
    )


def _parts(created: float, end: float | None, stays: Sequence[Stay], pauses: Sequence[Pause]) -> Iterator[Part]:
    """Yield what a job did, one after the other. A start before the end of what was before begins at this end."""
    at: float = created
    for stay in stays:
        start = max(stay.start, at)
        if start > at:
            yield from _without_room(at, start, pauses)
        stop = stay.end if stay.end is not None else end
        stop = None if stop is None else max(stop, start)
        running = max(stay.running, start) if stay.running is not None else None
        if running is None or (stop is not None and running >= stop):
            yield HELD, start, stop, stay
        else:
            if running > start:
                yield HELD, start, running, stay
            yield RAN, running, stop, stay
        if stop is None:
            return
        at = stop
    if end is None or end > at:
        yield from _without_room(at, end, pauses)


def _without_room(start: float, end: float | None, pauses: Sequence[Pause]) -> Iterator[Part]:
    """Yield what a job did while it held no room: it waited, and from a time on it may have been suspended."""
    until = math.inf if end is None else end
    begin, resumed = next((each for each in pauses if start <= each[0] < until), (until, None))
    if begin > start:
        yield WAITED, start, end if begin == until else begin, None
    if begin < until:
        stop = end if resumed is None or resumed >= until else max(resumed, begin)
        yield SUSPENDED, begin, stop, None
        if stop is not None and stop < until:
            yield WAITED, stop, end, None


def _stepped(created: float, now: float) -> float:
    """Return the present end of a life that goes on, rounded up to the next step."""
    length = max(now - created, 1.0)
    step = 2.0 ** math.ceil(math.log2(length / STEPS))
    return created + math.ceil(length / step) * step


def _summary(parts: Sequence[Part], until: float, marks: Sequence[Any]) -> str:
    sums = {WAITED: 0.0, SUSPENDED: 0.0, HELD: 0.0, RAN: 0.0}
    for kind, start, stop, _ in parts:
        sums[kind] += max(0.0, (until if stop is None else stop) - start)
    texts = [f"{kind} {ages.duration(seconds)}" for kind, seconds in sums.items() if seconds >= 1]
    for name in (RESTART, RESIZE):
        count = sum(kind == name for kind, _, _ in marks)
        texts += [f"{count} {name}{'' if count == 1 else 's'}"] if count else []
    return excerpts.one_line(", ".join(texts)) or "it has just been created"
