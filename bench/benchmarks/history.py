"""The history of jobs on SQLite or PostgreSQL: writing, usage and pruning, beside the bare driver on the same rows.

One rule: a reference is measured in the same run, in the same database program, with the same tables and indexes.

A job is written twice, as a recorder sees it: while it waits, and when it has ended. The environment variable
TORCHQ_BENCH_HISTORY_URL names an empty database of PostgreSQL; without it the database is SQLite in a temporary folder.
"""

import os
import random
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from bench.errors import BenchError
from bench.options import option
from bench.report import Figures
from bench.support.bare_history import BareHistory
from bench.support.processes import room
from coordinator.query.history_answers import answer_usage
from crds import timestamps
from history.errors import HistoryError
from history.rows import GapRow, HoldRow, JobRow, PoolRow, QueueRow, Row, WaitRow
from history.sql.migrations.migrate import migrate
from history.sql.sql_history import SqlHistory, open_history

VARIABLE = "TORCHQ_BENCH_HISTORY_URL"
YEAR, MONTH = 365 * 86_400, 30 * 86_400
BEGIN = 1_760_000_000
_GPU = "nvidia.com/gpu"
_ENDS = ("Succeeded",) * 17 + ("Failed",) * 2 + ("Cancelled",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The size of the history."""

    jobs: int = option(300_000, "jobs in a year")
    upserts: int = option(20_000, "jobs that are written by the bare driver, too")
    prune: int = option(100_000, "jobs that are deleted at the end")
    batch: int = option(500, "jobs in one transaction")


SHORT = Options(jobs=2_000, upserts=1_000, prune=1_000)


def run(options: Options) -> Figures:
    """Write a year, ask for usage, and prune. Raises BenchError on failure."""
    with room() as bench:
        url = os.environ.get(VARIABLE) or f"sqlite:///{bench.folder}/history.sqlite"
        try:
            return _measure(options, url, bench.folder)
        except HistoryError as error:
            raise BenchError(str(error)) from error


def _measure(options: Options, url: str, folder: Path) -> Figures:
    migrate(url)
    with closing(BareHistory(url, folder)) as bare, closing(open_history(url, "")) as store:
        years = [list(job_rows(number, options.jobs)) for number in range(options.jobs)]
        store.write(_setting())
        insert_s = _write(store, years, options.batch)
        bytes_per_job = bare.size() / options.jobs
        store.record_until(BEGIN + YEAR)
        bare.settle()
        scans = {
            f"{name}_of_scan": _scan(store, bare, start, length)
            for name, start, length in (("month", YEAR - MONTH, MONTH), ("year", 0, YEAR))
        }
        upserted = years[: min(options.upserts, options.jobs)]
        ours_s, bare_s = bare.compare_upserts(lambda other: _write(other, upserted, options.batch), options.batch)
        prune_s, pruned = _prune(store, options)
        return {
            "database": url.partition(":")[0],
            "jobs_per_s": round(len(upserted) / ours_s),
            "bare_jobs_per_s": round(len(upserted) / bare_s),
            "of_bare_upserts": round(bare_s / ours_s, 2),
            **{name: ratio for name, (ratio, _) in scans.items()},
            **{f"{name.partition('_')[0]}_s": seconds for name, (_, seconds) in scans.items()},
            "prune_of_insert": round(prune_s / (insert_s * pruned / options.jobs), 2),
            "bytes_per_job": round(bytes_per_job),
        }


def job_rows(number: int, count: int) -> Iterator[Row]:
    """Yield the rows of one of some jobs in a year, when it has ended: 1 job, 2 waits, and 1 to 3 holds."""
    chance = random.Random(number)
    uid = str(uuid.UUID(int=chance.getrandbits(128)))
    user, created = chance.randrange(200), BEGIN + number * (YEAR - 86_400) // count
    queue, outcome = f"team-{user % 20}", chance.choice(_ENDS)
    admitted = created + chance.randrange(3600)
    yield WaitRow(uid=uid, start=created, version=number * 10, queue=queue)
    yield WaitRow(uid=uid, start=admitted, version=number * 10 + 1, queue=queue, end=admitted)
    moment, gpus = admitted, chance.choice((1, 1, 2, 4, 8, 16))
    for attempt in range(1, 1 + chance.choice((1, 1, 1, 1, 2, 3))):
        end = moment + chance.randrange(60, 4 * 3600)
        charge = {_GPU: gpus, "cpu": 8000 * gpus, "memory": gpus * 2**36, "pods": gpus, "jobs": 1}
        yield HoldRow(
            uid=uid,
            number=attempt,
            version=number * 10 + attempt,
            queue=queue,
            attempt=attempt,
            start=moment,
            running=moment + 5,
            end=end,
            ended=outcome,
            charge=charge,
        )
        moment = end + 30
    yield JobRow(
        uid=uid,
        version=number * 10 + 9,
        namespace=f"space-{user % 30}",
        name=f"train-{chance.getrandbits(20):05x}",
        queue=queue,
        user=f"user-{user}@example.com",
        created=created,
        ended=moment,
        outcome=outcome,
        reason="AllTasksSucceeded",
        message="every task has ended with 0",
        result='{"loss": 0.125}',
        seen=moment,
    )


def _setting() -> list[Row]:
    weights = [QueueRow(name=f"team-{at}", start=BEGIN, version=1, weight=1 + at % 5) for at in range(20)]
    pool = PoolRow(start=BEGIN, amounts={_GPU: 512, "cpu": 8_000_000, "memory": 2**45})
    return [*weights, pool, GapRow(start=BEGIN + 1000, end=BEGIN + 2000)]


def _write(store: SqlHistory, years: Sequence[Sequence[Row]], batch: int) -> float:
    """Write jobs twice, and return the seconds."""
    begun = time.perf_counter()
    rest = iter(years)
    while some := list(islice(rest, batch)):
        store.write(_waiting(row) for job in some for row in job if not isinstance(row, HoldRow))
        store.write(row for job in some for row in job)
    return time.perf_counter() - begun


def _waiting(row: Row) -> Row:
    """Return a row as it was while the job waited."""
    if isinstance(row, JobRow):
        return replace(row, version=row.version - 9, ended=None, outcome="", seen=row.created)
    return row


def _scan(store: SqlHistory, bare: BareHistory, offset: int, length: int) -> tuple[float, float]:
    """Return the time of usage as a multiple of one SELECT's, and in seconds. The best of three."""
    start, end = BEGIN + offset, BEGIN + offset + length
    query = {"since": timestamps.format_time(start), "until": timestamps.format_time(end)}
    usage_s = min(_seconds(lambda: answer_usage(store, query, None, end, {}, "dominant")) for _ in range(3))
    scan_s = min(_seconds(lambda: bare.scan(start, end)) for _ in range(3))
    return round(usage_s / scan_s, 2), round(usage_s, 2)


def _seconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def _prune(store: SqlHistory, options: Options) -> tuple[float, int]:
    """Delete the oldest jobs, and return the seconds and how many there were."""
    begun, pruned = time.perf_counter(), 0
    wanted = min(options.prune, options.jobs)
    while pruned < wanted:
        pruned += store.prune(BEGIN + YEAR, min(options.batch, wanted - pruned))
    return time.perf_counter() - begun, pruned
