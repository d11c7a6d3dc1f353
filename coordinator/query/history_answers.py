"""The answers about the history of jobs and about usage, as JSON documents.

One rule: a document is the same whether the recorder made it, or a command that read the store on this machine. An
answer to a reader of some namespaces names no job, user, queue or namespace of others.

What is open counts up to the time up to which everything is recorded (`until`), and never beyond: nobody knows what
happened later. Sums of amount x seconds are exact, and texts, because they pass the numbers of JSON.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import cast

from coordinator.query import figures
from coordinator.query.questions import UNKNOWN_PREFIX, Document, UnknownObject
from crds import holds, timestamps
from crds.resources.amounts import JOBS, Amounts, increase, scale
from history import prices as price_list
from history import spans, usage, weights
from history.errors import InvalidQuery
from history.prices import Prices
from history.rows import OUTCOMES, GapRow, HoldRow, JobRow, PodRow, PoolRow
from history.spans import Period
from history.store import Grouping, HistoryStore, JobQuery, JobRecord, Span
from history.usage import Group, PoolSeconds, Records

GROUPINGS = ("queue", "namespace", "user")
MOST_JOBS, PAGE = 500, 50
"""The most jobs in one page, and how many there are unless a query says it."""
MOST_EARLIER = 10
"""The most other jobs of one name that an answer lists."""
MOST_HOLDS = 1_000
"""The most holds, and the most pods, that an answer about one job lists, the newest."""
MOST_GAPS = 100
"""The most gaps that an answer lists, the newest."""
_DIGITS = 4
"""To how many digits numbers of hours and prices are rounded."""


def answer_jobs(store: HistoryStore, query: Mapping[str, str], namespaces: frozenset[str] | None, now: int) -> Document:
    """Return one page of jobs, newest submission first. `continue` leads to the next page; it is empty on the last.

    `namespaces` are those that the reader may read; None: all. Raises InvalidQuery for a wrong query.
    """
    period = spans.parse(query, now)
    limit = _limit(query.get("limit", ""))
    asked = JobQuery(
        namespaces=_asked(query.get("namespace", ""), namespaces),
        queue=query.get("queue", ""),
        user=query.get("user", ""),
        outcome=_outcome(query.get("outcome", "")),
        span=period.span if period else None,
        limit=limit + 1,
        after=_after(query.get("continue", "")),
    )
    found = store.jobs(asked)
    page = found[:limit]
    until = _until(store, now)
    known_to = _known_to(store, [each.job for each in page], now)
    last = page[-1].job if len(found) > limit else None
    return {
        "until": timestamps.format_time(until),
        "items": [_summary(each, until, known_to) for each in page],
        "continue": f"{last.created}:{last.uid}" if last else "",
    }


def answer_job(store: HistoryStore, namespace: str, name: str, uid: str, now: int) -> Document:
    """Return one job with its holds, and the other jobs of its name. Without a uid, it is the newest job of that name.

    Raises UnknownObject if the history has no such job.
    """
    named = JobQuery(namespaces=frozenset({namespace}), name=name, limit=MOST_EARLIER + 2)
    others = store.jobs(named) if name else ()
    found = (
        store.jobs(JobQuery(namespaces=frozenset({namespace}), name=name, uid=uid, limit=1))
        if uid and name
        else others[:1]
    )
    if not found:
        raise UnknownObject(f"{UNKNOWN_PREFIX}job {namespace}/{name}{uid and f'/{uid}'} in the history")
    record, until = found[0], _until(store, now)
    listed = [each.job for each in others if each.job.uid != record.job.uid]
    pods = [each for each in record.pods if each.start != each.end]
    return {
        "until": timestamps.format_time(until),
        **_summary(record, until, _known_to(store, [record.job], now)),
        "holds": [_hold(each, until) for each in record.holds[-MOST_HOLDS:]],
        "pods": [_pod(each, until) for each in pods[-MOST_HOLDS:]],
        "podCount": len(pods),
        "others": [_other(each) for each in listed[:MOST_EARLIER]],
        # Of a few, none is counted twice; of many, the job itself is one.
        "otherCount": len(listed) if len(listed) <= MOST_EARLIER else store.count_jobs(named) - 1,
    }


def answer_usage(
    store: HistoryStore,
    query: Mapping[str, str],
    namespaces: frozenset[str] | None,
    now: int,
    prices: Prices,
    cost: str,
) -> Document:
    """Return who has used how much in a span, which is this month unless the query names another.

    `cost` is what weights divide (`queues.rules`). Raises InvalidQuery for a wrong query.
    """
    by, (asked, zone) = parse_usage(query, now)
    until = _until(store, now)
    span = Span(asked.start, max(asked.start, min(asked.end, until)))
    pools = store.pools(span)
    records = Records(
        sums=store.sums(span, span.end),
        waits=store.first_waits(span),
        entitlements=weights.entitlements(store.demands(span, span.end), store.queues(span), span),
        pool=usage.offered(pools, span),
    )
    found, others = usage.groups(records, cast("Grouping", by), cost, prices, namespaces)
    lines = _lines([*found, *([others] if others else [])])
    gaps = store.gaps(Span(asked.start, min(asked.end, max(now, asked.start))))
    return {
        "by": by,
        "from": timestamps.format_time(asked.start),
        "to": timestamps.format_time(asked.end),
        "until": timestamps.format_time(until),
        "zone": zone.key,
        "items": lines[: len(found)],
        "others": lines[-1] if others else None,
        "cluster": _cluster(store, span, records, pools),
        "gaps": [_times(each) for each in gaps[-MOST_GAPS:]],
        "otherGaps": max(0, len(gaps) - MOST_GAPS),
    }


def parse_usage(query: Mapping[str, str], now: int) -> tuple[str, Period]:
    """Return what sums are kept apart by, and the span that a query asks for. Raises InvalidQuery."""
    by = query.get("by") or GROUPINGS[0]
    if by not in GROUPINGS:
        raise InvalidQuery(f"by: {by[:64]!r} is none of {', '.join(GROUPINGS)}")
    if query.get("until") and not query.get("since"):
        raise InvalidQuery("until: name since, too")
    zone = spans.parse_zone(query.get("tz", ""))
    return by, spans.parse(query, now) or Period(spans.this_month(zone, now), zone)


def _until(store: HistoryStore, now: int) -> int:
    """Return up to when jobs that have not ended count."""
    return min(now, store.recorded_until() or now)


def _asked(namespace: str, namespaces: frozenset[str] | None) -> frozenset[str] | None:
    if not namespace:
        return namespaces
    return frozenset({namespace}) if namespaces is None else namespaces & {namespace}


def _limit(text: str) -> int:
    if not text:
        return PAGE
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MOST_JOBS)) and 1 <= int(text) <= MOST_JOBS):
        raise InvalidQuery(f"limit: {text[:64]!r} is not a number from 1 to {MOST_JOBS}")
    return int(text)


def _outcome(text: str) -> str:
    found = next((each for each in OUTCOMES if each.lower() == text.lower()), "")
    if text and not found:
        raise InvalidQuery(f"outcome: {text[:64]!r} is none of {', '.join(OUTCOMES)}")
    return found


def _after(text: str) -> tuple[int, str] | None:
    created, colon, uid = text.partition(":")
    if not text:
        return None
    if not (colon and created.isascii() and created.isdigit() and len(created) <= len(str(10**12))):
        raise InvalidQuery(f"continue: {text[:64]!r} is not what an answer has given")
    return int(created), uid


def _known_to(store: HistoryStore, jobs: Iterable[JobRow], now: int) -> Callable[[JobRow], int | None]:
    """Return a function that returns to how many seconds the end of a job is known; None: exactly, or nobody knows.

    The end of a job that went away while no recorder looked is before the end of the gap.
    """
    ends = [each.ended for each in jobs if each.is_approximate and each.ended is not None]
    gaps: Sequence[GapRow] = store.gaps(Span(min(ends), max(now, *ends) + 1)) if ends else ()

    def known_to(job: JobRow) -> int | None:
        if not job.is_approximate or job.ended is None:
            return None
        return next((gap.end - job.ended for gap in gaps if gap.end > job.ended), None)

    return known_to


def _summary(record: JobRecord, until: int, known_to: Callable[[JobRow], int | None]) -> Document:
    job = record.job
    seconds: dict[str, int] = {}
    for hold in record.holds:
        increase(seconds, _seconds(hold, until))
    for pod in record.pods:
        increase(seconds, scale(pod.charge, _length(pod.start, pod.end, until)))
    return {
        "namespace": job.namespace,
        "name": job.name,
        "uid": job.uid,
        "queue": job.queue,
        "user": job.user,
        "outcome": job.outcome,
        "state": state_of(record),
        "isApproximate": job.is_approximate,
        "endKnownToSeconds": known_to(job),
        "submitted": timestamps.format_time(job.created),
        "ended": _time(job.ended),
        "waitedSeconds": _waited(record, until),
        "heldSeconds": sum(_held_seconds(each, until) for each in record.holds),
        "holdCount": len(record.holds),
        "held": _amounts(seconds),
        "attempts": max((each.attempt for each in record.holds), default=0),
        "restarts": job.restarts,
        "disruptions": job.disruptions,
        "reason": job.reason,
        "message": job.message,
        "result": job.result,
    }


def state_of(record: JobRecord) -> str:
    """Return the outcome of a job, else what it does."""
    if record.job.outcome:
        return record.job.outcome
    open_hold = next((each for each in record.holds if each.end is None), None)
    if open_hold is None:
        return "Waiting"
    return "Admitted" if open_hold.running is None else "Running"


def waits(record: JobRecord, until: int) -> Iterator[tuple[int, int]]:
    """Yield when a job waited in its queue. A wait ends at the latest when the next one begins, or the job ends."""
    last = until if record.job.ended is None else record.job.ended
    starts = [*(each.start for each in record.waits), last]
    for each, after in zip(record.waits, starts[1:], strict=True):
        yield each.start, min(last, after, last if each.end is None else each.end)


def _waited(record: JobRecord, until: int) -> int:
    return sum(_length(start, end, until) for start, end in waits(record, until))


def _length(start: int, end: int | None, until: int) -> int:
    return max(0, (until if end is None else end) - start)


def _seconds(hold: HoldRow, until: int) -> Amounts:
    """Return what a hold is charged, as amount x seconds."""
    return hold.seconds if hold.numbers else scale(hold.charge, _length(hold.start, hold.end, until))


def _held_seconds(hold: HoldRow, until: int) -> int:
    """Return for how long room was held; of several holds together, as long as one job was charged."""
    return hold.seconds.get(JOBS, 0) if hold.numbers else _length(hold.start, hold.end, until)


def _hold(hold: HoldRow, until: int) -> Document:
    unpaid = hold.unpaid_seconds if hold.numbers else scale(hold.unpaid, _length(hold.start, hold.end, until))
    return {
        "number": hold.number,
        "numbers": hold.numbers or str(hold.number),
        "queue": hold.queue,
        "attempt": hold.attempt,
        "workers": hold.workers,
        "charge": figures.format_amounts(hold.charge),
        "unpaid": figures.format_amounts(hold.unpaid),
        "otherResources": hold.others,
        "from": timestamps.format_time(hold.start),
        "running": _time(hold.running),
        "to": _time(hold.end),
        "ended": hold.ended,
        "isApproximate": hold.is_approximate,
        "heldSeconds": _held_seconds(hold, until),
        "held": _amounts(_seconds(hold, until)),
        "idleGrowth": _amounts(unpaid),
    }


def _pod(pod: PodRow, until: int) -> Document:
    return {
        "queue": pod.queue,
        "charge": figures.format_amounts(pod.charge),
        "from": timestamps.format_time(pod.start),
        "to": _time(pod.end),
        "isApproximate": pod.is_approximate,
        "held": _amounts(scale(pod.charge, _length(pod.start, pod.end, until))),
    }


def _other(job: JobRow) -> Document:
    return {"uid": job.uid, "submitted": timestamps.format_time(job.created), "outcome": job.outcome}


def _time(moment: int | None) -> str | None:
    return None if moment is None else timestamps.format_time(moment)


def _times(gap: GapRow) -> Document:
    return {"from": timestamps.format_time(gap.start), "to": timestamps.format_time(gap.end)}


def _amounts(seconds: Amounts) -> Document:
    """Return sums of amount x seconds: exactly, and as hours. As many resources are named as a hold names."""
    named, others = holds.bounded(seconds)
    hours = {name: _hours(name, amount) for name, amount in named.items()}
    return {
        "seconds": {name: str(amount) for name, amount in named.items()},
        "hours": hours,
        "gpuHours": _hours(usage.GPUS, usage.gpus(seconds)),
        "cpuHours": _hours(usage.CPU, seconds.get(usage.CPU, 0)),
        "otherResources": others,
    }


def _hours(name: str, seconds: int) -> float:
    return round(float(price_list.hours(name, seconds)), _DIGITS)


def _lines(groups: Sequence[Group]) -> list[Document]:
    shares = usage.percents([each.share or 0 for each in groups])
    targets = usage.percents([each.target or 0 for each in groups])
    return [
        {
            "name": each.name,
            "jobs": each.jobs,
            "held": _amounts(each.held),
            "idleGrowth": _amounts(each.unpaid),
            "failed": _amounts(each.failed),
            "sharePercent": None if each.share is None else share,
            "targetPercent": None if each.target is None else target,
            "price": None if each.price is None else round(float(each.price), _DIGITS),
            "waitSeconds": None if each.waits is None else {"p50": each.waits[0], "p95": each.waits[1]},
        }
        for each, share, target in zip(groups, shares, targets, strict=True)
    ]


def _cluster(store: HistoryStore, span: Span, records: Records, pools: Sequence[PoolRow]) -> Document | None:
    """Return what became of the pool; None if it is not known how many GPUs or CPUs it had."""
    known = usage.known(pools, span)
    if known is None:
        return None
    sums = records.sums if known == span else store.sums(known, known.end)
    waiting = store.waits(known, known.end)
    return _pool_use(usage.cluster(known, pools, sums, waiting, store.held_while(waiting, known.end)))


def _pool_use(cluster: PoolSeconds) -> Document:
    parts = {
        "paid": cluster.paid,
        "idleGrowth": cluster.unpaid,
        "idleWhileWaiting": cluster.idle_while_waiting,
        "idle": cluster.idle,
    }
    return {
        "from": timestamps.format_time(cluster.span.start),
        "to": timestamps.format_time(cluster.span.end),
        "resource": cluster.resource,
        "offeredHours": _hours(cluster.resource, cluster.offered),
        "seconds": {name: str(amount) for name, amount in (("offered", cluster.offered), *parts.items())},
        "percents": dict(zip(parts, usage.percents([*parts.values()]), strict=True)),
    }
