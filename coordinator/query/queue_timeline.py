"""The answer about what a queue did in a span: its share beside its target, step by step, and its jobs in time.

One rule: that of `coordinator.query.history_answers`.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import pairwise

from coordinator.query import history_answers
from coordinator.query.questions import Document
from crds import timestamps
from history import spans, usage, weights
from history.errors import InvalidQuery
from history.store import HistoryStore, JobQuery, JobRecord, Span
from history.usage import Records

STEPS = 48
"""How many steps a span has: half an hour each of a day."""
DAY_SECONDS = 86_400
MOST_DAYS = 31
MOST_JOBS = 50
MOST_TIMES = 20
"""The most holds, and the most waits, of each job: the newest."""


def answer_timeline(
    store: HistoryStore, query: Mapping[str, str], namespaces: frozenset[str] | None, now: int, cost: str
) -> Document:
    """Return what a queue did in a span, which is the last day unless the query names another.

    `namespaces` and `cost` are those of `history_answers.answer_usage`. Raises InvalidQuery for a wrong query.
    """
    queue = query.get("queue", "")
    if not queue:
        raise InvalidQuery("queue: name a queue")
    period = spans.parse(query, now)
    asked = period.span if period else Span(now - DAY_SECONDS, now)
    if asked.end - asked.start > MOST_DAYS * DAY_SECONDS:
        raise InvalidQuery(f"since: a timeline has at most {MOST_DAYS} days")
    until = min(now, store.recorded_until() or now)
    jobs = store.jobs(JobQuery(namespaces=namespaces, queue=queue, span=asked, limit=MOST_JOBS + 1))
    return {
        "from": timestamps.format_time(asked.start),
        "to": timestamps.format_time(asked.end),
        "until": timestamps.format_time(until),
        "steps": [*_steps(store, queue, asked, until, namespaces, cost)],
        "items": [_job(each, until) for each in jobs[:MOST_JOBS]],
        "hasMoreJobs": len(jobs) > MOST_JOBS,
    }


def _steps(
    store: HistoryStore, queue: str, asked: Span, until: int, namespaces: frozenset[str] | None, cost: str
) -> Iterator[Document]:
    """Yield the share and the target of a queue in each step, as `history.usage` has them for the step alone."""
    known = Span(asked.start, max(asked.start, min(asked.end, until)))
    demands, rows, pools = store.demands(known, known.end), store.queues(known), store.pools(known)
    edges = [asked.start + (asked.end - asked.start) * number // STEPS for number in range(STEPS + 1)]
    for start, end in pairwise(edges):
        step = Span(start, min(end, known.end))
        times = {"from": timestamps.format_time(start), "to": timestamps.format_time(end)}
        if step.start >= step.end:
            yield {**times, "sharePercent": None, "targetPercent": None}
            continue
        records = Records(
            sums=store.sums(step, step.end),
            waits={},
            entitlements=weights.entitlements(demands, rows, step),
            pool=usage.offered(pools, step),
        )
        yield times | _shares(records, queue, namespaces, cost)


def _shares(records: Records, queue: str, namespaces: frozenset[str] | None, cost: str) -> Document:
    found, _ = usage.groups(records, "queue", cost, {}, namespaces)
    group = next((each for each in found if each.name == queue), None)
    share, target = (group.share, group.target) if group else (None, None)
    return {"sharePercent": _percents(share), "targetPercent": _percents(target)}


def _percents(part: Fraction | None) -> int | None:
    return None if part is None else round(100 * part)


def _job(record: JobRecord, until: int) -> Document:
    job = record.job
    waits = [(start, end) for start, end in history_answers.waits(record, until) if start < end]
    return {
        "namespace": job.namespace,
        "name": job.name,
        "uid": job.uid,
        "state": history_answers.state_of(record),
        "submitted": timestamps.format_time(job.created),
        "ended": _time(job.ended),
        "isApproximate": job.is_approximate,
        "holds": [_times(each.start, until if each.end is None else each.end) for each in record.holds[-MOST_TIMES:]],
        "waits": [_times(*each) for each in waits[-MOST_TIMES:]],
    }


def _times(start: int, end: int) -> Document:
    return {"from": timestamps.format_time(start), "to": timestamps.format_time(max(start, end))}


def _time(moment: int | None) -> str | None:
    return None if moment is None else timestamps.format_time(moment)
