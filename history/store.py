"""The contract of the place that keeps the history.

One rule: the store decides nothing. It keeps rows by their keys, never lets a row of an older version replace a newer
one, and adds up exactly.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from history.rows import GapRow, HoldRow, JobRow, PodRow, PoolRow, QueueRow, Row, WaitRow

Grouping = Literal["queue", "namespace", "user"]


class Span(NamedTuple):
    """The time [start, end), in seconds since the epoch."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuery:
    """Which jobs are asked for, and which page of them, newest first."""

    namespaces: frozenset[str] | None = None
    """The namespaces; None: all."""
    name: str = ""
    uid: str = ""
    queue: str = ""
    user: str = ""
    outcome: str = ""
    span: Span | None = None
    """Only jobs that existed in the span: submitted before its end, and not ended before its start."""
    limit: int = 50
    after: tuple[int, str] | None = None
    """The `created` and uid of the last job of the page before."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job with its holds, by number, the pods that outlived it, and its waits, by start."""

    job: JobRow
    holds: tuple[HoldRow, ...]
    pods: tuple[PodRow, ...] = ()
    waits: tuple[WaitRow, ...] = ()


class GroupKey(NamedTuple):
    """What sums are kept apart by: the queue, and the namespace and user of the job."""

    queue: str
    namespace: str
    user: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSums:
    """What the jobs of one group held in a span: exact sums of amount x seconds."""

    key: GroupKey
    held: Mapping[str, int]
    """By resource, all that was held, with idle growth and with pods that outlived their jobs."""
    unpaid: Mapping[str, int]
    """The part that was idle growth."""
    failed: Mapping[str, int]
    """The part of jobs that have failed."""
    jobs: int
    """The number of jobs that held room in the span."""


class Demand(NamedTuple):
    """A longest time for which a queue had a job that held room or waited."""

    queue: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenJob:
    """A job whose row has no end, for the check after an absence."""

    row: JobRow
    holds: tuple[HoldRow, ...]
    """Its holds without an end."""


class HistoryStore(Protocol):
    """A store of rows. Every method raises NotReachable if the database does not answer; `now` ends what is open."""

    def write(self, rows: Iterable[Row]) -> int:
        """Insert or update rows in one transaction, and return how many differ now. A row of an older version, or of
        the same version with an approximate end where an exact end is known, changes nothing."""

    def recorded_until(self) -> int:
        """Return up to when everything is recorded; 0 if nothing is."""

    def record_until(self, moment: int) -> None:
        """Record that everything up to a time is in the rows; an earlier time than before changes nothing."""

    def open_jobs(self) -> Sequence[OpenJob]:
        """Return the jobs without an end."""

    def open_pods(self) -> Sequence[PodRow]:
        """Return the pods without an end."""

    def jobs(self, query: JobQuery) -> Sequence[JobRecord]:
        """Return one page of jobs with all their holds, newest submission first."""

    def count_jobs(self, query: JobQuery) -> int:
        """Return how many jobs a query finds without its limit."""

    def sums(self, span: Span, now: int) -> Sequence[GroupSums]:
        """Return what each group held in a span. The sums over adjacent spans add up to the sum over both."""

    def first_waits(self, span: Span) -> Mapping[GroupKey, Sequence[int]]:
        """Return by group for how many seconds each job had waited that was first admitted in a span."""

    def demands(self, span: Span, now: int) -> Sequence[Demand]:
        """Return when the queues had jobs that held room or waited, by queue and start, none that touch."""

    def waits(self, span: Span, now: int) -> Sequence[Span]:
        """Return when at least one job waited in a span, by start, none that touch."""

    def held_while(self, spans: Sequence[Span], now: int) -> Mapping[str, int]:
        """Return by resource what all jobs and pods held in these times, as amount x seconds. The times are by start
        and do not touch; there may be thousands."""

    def queues(self, span: Span) -> Sequence[QueueRow]:
        """Return the weights that were valid in a span, by queue and start; the first of a queue may be older."""

    def pools(self, span: Span) -> Sequence[PoolRow]:
        """Return the pools of a span, by start; the first may be older."""

    def gaps(self, span: Span) -> Sequence[GapRow]:
        """Return the gaps that touch a span, by start."""

    def prune(self, before: int, limit: int) -> int:
        """Delete at most `limit` jobs that ended before a time, as did their pods, with their rows, and return how many
        there were; then also pods, and rows of queues, pools and gaps that no later time needs."""
