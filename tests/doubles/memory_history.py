"""The history in memory, for tests: the twin of `history.sql.sql_history`.

One rule: no index and no cut corner. Every question goes over all rows, so this store is the measure of the other.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, zip_longest
from typing import TypeVar

from history import merged_holds, precedence
from history.precedence import Key
from history.rows import GapRow, HoldRow, JobRow, PodRow, PoolRow, QueueRow, Row, WaitRow
from history.store import Demand, GroupKey, GroupSums, JobQuery, JobRecord, OpenJob, Span

_Kind = TypeVar("_Kind", bound=Row)
_Timed = TypeVar("_Timed", QueueRow, PoolRow)
_Share = Callable[[Span], tuple[dict[str, int], dict[str, int]]]
"""What of a hold falls into a span: all that was held, and the part that was idle growth."""


class MemoryHistory:
    """A HistoryStore."""

    def __init__(self) -> None:
        self.rows: dict[Key, Row] = {}
        self._until = 0

    def write(self, rows: Iterable[Row]) -> int:
        """See HistoryStore."""
        changed = {}
        for row in rows:
            key = precedence.key(row)
            if key not in self.rows or precedence.wins(row, self.rows[key]):
                self.rows[key] = changed[key] = row
        for uid in {row.uid for row in changed.values() if isinstance(row, HoldRow)}:
            kept = self._kept(uid)
            for hold in self._of_job(HoldRow, uid):
                if hold not in kept.counted and hold not in kept.hidden:
                    del self.rows[precedence.key(hold)]
        return sum(key in self.rows for key in changed)

    def recorded_until(self) -> int:
        """See HistoryStore."""
        return self._until

    def record_until(self, moment: int) -> None:
        """See HistoryStore."""
        self._until = max(self._until, moment)

    def open_jobs(self) -> Sequence[OpenJob]:
        """See HistoryStore."""
        return [
            OpenJob(row=job, holds=tuple(hold for hold in self._holds(job.uid) if hold.end is None))
            for job in sorted(self._all(JobRow), key=lambda job: job.uid)
            if job.ended is None
        ]

    def open_pods(self) -> Sequence[PodRow]:
        """See HistoryStore."""
        return sorted((pod for pod in self._all(PodRow) if pod.end is None), key=lambda pod: pod.uid)

    def jobs(self, query: JobQuery) -> Sequence[JobRecord]:
        """See HistoryStore."""
        found = sorted((job.created, job.uid) for job in self._all(JobRow) if _is_asked_for(job, query))
        page = [at for at in reversed(found) if query.after is None or at < query.after][: query.limit]
        return [self._record(uid) for _, uid in page]

    def count_jobs(self, query: JobQuery) -> int:
        """See HistoryStore."""
        return len(self.jobs(replace(query, limit=len(self.rows))))

    def sums(self, span: Span, now: int) -> Sequence[GroupSums]:
        """See HistoryStore."""
        held, unpaid, failed = _sums(), _sums(), _sums()
        jobs: defaultdict[GroupKey, set[str]] = defaultdict(set)
        for uid, key, has_failed, start, end, share in self._held(now):
            if max(start, span.start) < min(end, span.end):
                jobs[key].add(uid)
                for total, amounts in zip((held, unpaid), share(span), strict=True):
                    for name, amount in amounts.items():
                        total[key][name] += amount
                        if has_failed and total is held:
                            failed[key][name] += amount
        return [
            GroupSums(
                key=key,
                held=_positive(held[key]),
                unpaid=_positive(unpaid[key]),
                failed=_positive(failed[key]),
                jobs=len(uids),
            )
            for key, uids in sorted(jobs.items())
        ]

    def first_waits(self, span: Span) -> Mapping[GroupKey, Sequence[int]]:
        """See HistoryStore."""
        found: defaultdict[GroupKey, list[int]] = defaultdict(list)
        for job in self._all(JobRow):
            first = min(
                self._holds(job.uid), key=lambda hold: (hold.number != 1, hold.start, hold.number), default=None
            )
            if first is not None and span.start <= first.start < span.end:
                waits = self._waited(job, first.start)
                seconds = sum(max(0, min(wait.end, first.start) - wait.start) for _, wait in waits)
                found[GroupKey(first.queue, job.namespace, job.user)].append(seconds)
        return found

    def demands(self, span: Span, now: int) -> Sequence[Demand]:
        """See HistoryStore."""
        holds = [hold for uid in {hold.uid for hold in self._all(HoldRow)} for hold in self._holds(uid)]
        held = [Demand(hold.queue, hold.start, _end(hold.end, now)) for hold in holds]
        waited = [Demand(queue, *wait) for job in self._all(JobRow) for queue, wait in self._waited(job, now)]
        wanted = [Demand(each.queue, max(each.start, span.start), min(each.end, span.end)) for each in (*held, *waited)]
        joined: list[Demand] = []
        for each in sorted(demand for demand in wanted if demand.start < demand.end):
            if joined and joined[-1].queue == each.queue and each.start <= joined[-1].end:
                joined[-1] = joined[-1]._replace(end=max(joined[-1].end, each.end))
            else:
                joined.append(each)
        return joined

    def waits(self, span: Span, now: int) -> Sequence[Span]:
        """See HistoryStore."""
        joined: list[Span] = []
        for start, end in sorted(wait for job in self._all(JobRow) for _, wait in self._waited(job, now)):
            clipped = Span(max(start, span.start), min(end, span.end))
            if joined and clipped.start <= joined[-1].end:
                joined[-1] = Span(joined[-1].start, max(joined[-1].end, clipped.end))
            elif clipped.start < clipped.end:
                joined.append(clipped)
        return joined

    def held_while(self, spans: Sequence[Span], now: int) -> Mapping[str, int]:
        """See HistoryStore."""
        total: defaultdict[str, int] = defaultdict(int)
        for span in spans:
            for each in self.sums(span, now):
                for name, amount in each.held.items():
                    total[name] += amount
        return total

    def queues(self, span: Span) -> Sequence[QueueRow]:
        """See HistoryStore."""
        rows = sorted(self._all(QueueRow), key=lambda row: (row.name, row.start))
        return [row for _, each in groupby(rows, key=lambda row: row.name) for row in _valid(list(each), span)]

    def pools(self, span: Span) -> Sequence[PoolRow]:
        """See HistoryStore."""
        return _valid(sorted(self._all(PoolRow), key=lambda row: row.start), span)

    def gaps(self, span: Span) -> Sequence[GapRow]:
        """See HistoryStore."""
        rows = sorted(self._all(GapRow), key=lambda row: row.start)
        return [gap for gap in rows if gap.start < span.end and span.start < gap.end]

    def prune(self, before: int, limit: int) -> int:
        """See HistoryStore."""
        with_pods = {pod.job for pod in self._all(PodRow) if _end(pod.end, before) >= before}
        old = sorted((_end(job.ended, before), job.uid) for job in self._all(JobRow) if job.uid not in with_pods)
        uids = {uid for ended, uid in old[:limit] if ended < before}
        rest = Span(before, before + 1)
        needed = [*self.pools(rest), *(row for row in self.queues(rest) if row.weight or row.start > before)]
        for key, row in list(self.rows.items()):
            match row:
                case JobRow() | HoldRow() | WaitRow():
                    is_needed = row.uid not in uids
                case PodRow() | GapRow():
                    is_needed = row.end is None or row.end >= before
                case QueueRow() | PoolRow():
                    is_needed = row in needed or row.start > before
            if not is_needed:
                del self.rows[key]
        return len(uids)

    def _all(self, kind: type[_Kind]) -> Iterator[_Kind]:
        return (row for row in self.rows.values() if isinstance(row, kind))

    def _of_job(self, kind: type[_Kind], uid: str) -> list[_Kind]:
        return [row for row in self._all(kind) if getattr(row, "uid", "") == uid]

    def _kept(self, uid: str) -> merged_holds.KeptHolds:
        return merged_holds.keep(self._of_job(HoldRow, uid))

    def _holds(self, uid: str) -> Sequence[HoldRow]:
        return self._kept(uid).counted

    def _waited(self, job: JobRow, now: int) -> list[tuple[str, Span]]:
        """Return in which queues a job waited, and when: a wait ends at its end, when the next row begins, or when the
        job ends."""
        rows = sorted(self._of_job(WaitRow, job.uid), key=lambda row: row.start)
        nexts = [row.start for row in rows[1:]]
        ends = [
            [end for end in (row.end, after, job.ended) if end is not None] for row, after in zip_longest(rows, nexts)
        ]
        return [(row.queue, Span(row.start, min(end, default=now))) for row, end in zip(rows, ends, strict=True)]

    def _record(self, uid: str) -> JobRecord:
        (job,) = self._of_job(JobRow, uid)
        pods = sorted((pod for pod in self._all(PodRow) if pod.job == uid), key=lambda pod: (pod.start, pod.uid))
        waits = sorted(self._of_job(WaitRow, uid), key=lambda wait: wait.start)
        return JobRecord(job=job, holds=tuple(self._holds(uid)), pods=tuple(pods), waits=tuple(waits))

    def _held(self, now: int) -> Iterator[tuple[str, GroupKey, bool, int, int, _Share]]:
        jobs = {job.uid: job for job in self._all(JobRow)}
        for job in jobs.values():
            for hold in self._holds(job.uid):
                key = GroupKey(hold.queue, job.namespace, job.user)
                yield job.uid, key, job.outcome == "Failed", hold.start, _end(hold.end, now), _share_of(hold, now)
        for pod in self._all(PodRow):
            owner = jobs.get(pod.job)
            key = GroupKey(pod.queue, pod.namespace, owner.user if owner else "")
            has_failed = owner is not None and owner.outcome == "Failed"
            yield pod.job, key, has_failed, pod.start, _end(pod.end, now), _share_of(pod, now)


def _share_of(row: HoldRow | PodRow, now: int) -> _Share:
    start, end = row.start, _end(row.end, now)

    def of(span: Span) -> tuple[dict[str, int], dict[str, int]]:
        begin, until = max(start, span.start), min(end, span.end)
        if isinstance(row, HoldRow) and row.numbers:
            held, unpaid = (
                {name: merged_holds.share(total, start, end, begin, until) for name, total in sums.items()}
                for sums in (row.seconds, row.unpaid_seconds)
            )
            return held, unpaid
        idle = row.unpaid if isinstance(row, HoldRow) else {}
        held, unpaid = (
            {name: amount * (until - begin) for name, amount in amounts.items()} for amounts in (row.charge, idle)
        )
        return held, unpaid

    return of


def _sums() -> defaultdict[GroupKey, defaultdict[str, int]]:
    return defaultdict(lambda: defaultdict(int))


def _positive(sums: dict[str, int]) -> dict[str, int]:
    return {name: total for name, total in sums.items() if total}


def _end(end: int | None, now: int) -> int:
    return now if end is None else end


def _valid(rows: Sequence[_Timed], span: Span) -> list[_Timed]:
    """Return the rows that are valid in a span: those from within, and the last one from before."""
    valid = [row for row in rows if row.start <= span.start][-1:]
    valid.extend(row for row in rows if span.start < row.start < span.end)
    return valid


def _is_asked_for(job: JobRow, query: JobQuery) -> bool:
    pairs = (
        (query.name, job.name),
        (query.uid, job.uid),
        (query.queue, job.queue),
        (query.user, job.user),
        (query.outcome, job.outcome),
    )
    return (
        (query.namespaces is None or job.namespace in query.namespaces)
        and all(asked in ("", had) for asked, had in pairs)
        and (
            query.span is None
            or (job.created < query.span.end and (job.ended is None or job.ended >= query.span.start))
        )
    )
