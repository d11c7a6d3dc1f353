"""How rows are read: pages of jobs, what is open, and what was valid in a span."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Table, func, select, tuple_

from history.rows import GapRow, HoldRow, PodRow, PoolRow, QueueRow, WaitRow
from history.sql import row_values
from history.sql.dictionaries import read_charges
from history.sql.statements import among, chunks
from history.sql.tables import OPEN, gaps, holds, jobs, pods, pools, queues, waits
from history.store import JobQuery, JobRecord, OpenJob, Span

_Timed = TypeVar("_Timed", QueueRow, PoolRow)


def records(connection: Connection, query: JobQuery) -> Sequence[JobRecord]:
    """Return one page of jobs, newest submission first."""
    found = [
        row_values.job(row)
        for row in connection.execute(
            select(jobs)
            .where(*_conditions(query))
            .order_by(jobs.c.created.desc(), jobs.c.uid.desc())
            .limit(query.limit)
        )
    ]
    uids = [job.uid for job in found]
    own_holds, own_pods = _holds(connection, uids), _pods(connection, uids)
    own_waits: defaultdict[str, list[WaitRow]] = defaultdict(list)
    for row in _of(connection, waits, waits.c.uid, uids):
        own_waits[row.uid].append(row_values.wait(row))
    return [
        JobRecord(
            job=job,
            holds=tuple(sorted(own_holds[job.uid], key=lambda hold: hold.number)),
            pods=tuple(sorted(own_pods[job.uid], key=lambda pod: (pod.start, pod.uid))),
            waits=tuple(sorted(own_waits[job.uid], key=lambda wait: wait.start)),
        )
        for job in found
    ]


def count(connection: Connection, query: JobQuery) -> int:
    """Return how many jobs a query finds without its limit."""
    return connection.execute(select(func.count()).select_from(jobs).where(*_conditions(query))).scalar_one()


def open_jobs(connection: Connection) -> Sequence[OpenJob]:
    """Return the jobs without an end."""
    rows = [row_values.job(row) for row in connection.execute(select(jobs).where(jobs.c.until == OPEN))]
    own = _holds(connection, [job.uid for job in rows], holds.c.until == OPEN)
    return [
        OpenJob(row=job, holds=tuple(sorted(own[job.uid], key=lambda hold: hold.number)))
        for job in sorted(rows, key=lambda job: job.uid)
    ]


def open_pods(connection: Connection) -> Sequence[PodRow]:
    """Return the pods without an end."""
    rows = connection.execute(select(pods).where(pods.c.until == OPEN).order_by(pods.c.uid)).all()
    amounts = read_charges(connection, (row.charge for row in rows))
    return [row_values.pod(row, amounts) for row in rows]


def weights(connection: Connection, span: Span) -> Sequence[QueueRow]:
    """Return the weights of a span, by queue and start."""
    stored = connection.execute(select(queues).where(queues.c.start < span.end).order_by(queues.c.name, queues.c.start))
    rows = [QueueRow(name=row.name, start=row.start, version=row.version, weight=row.weight) for row in stored]
    return [row for _, each in groupby(rows, key=lambda row: row.name) for row in _valid(list(each), span)]


def all_pools(connection: Connection, span: Span) -> Sequence[PoolRow]:
    """Return the pools of a span, by start."""
    stored = connection.execute(select(pools).where(pools.c.start < span.end).order_by(pools.c.start))
    return _valid([PoolRow(start=row.start, amounts=json.loads(row.amounts)) for row in stored], span)


def all_gaps(connection: Connection, span: Span) -> Sequence[GapRow]:
    """Return the gaps that touch a span, by start."""
    touching = select(gaps).where(gaps.c.start < span.end, gaps.c.until > span.start).order_by(gaps.c.start)
    return [GapRow(start=row.start, end=row.until) for row in connection.execute(touching)]


def _conditions(query: JobQuery) -> list[ColumnElement[bool]]:
    columns = {
        jobs.c.name: query.name,
        jobs.c.uid: query.uid,
        jobs.c.queue: query.queue,
        jobs.c.username: query.user,
        jobs.c.outcome: query.outcome,
    }
    conditions = [column == row_values.text(asked) for column, asked in columns.items() if asked]
    if query.namespaces is not None:
        conditions.append(jobs.c.namespace.in_(sorted(map(row_values.text, query.namespaces))))
    if query.span is not None:
        conditions += [jobs.c.created < query.span.end, jobs.c.until >= query.span.start]
    if query.after is not None:
        conditions.append(tuple_(jobs.c.created, jobs.c.uid) < tuple_(*query.after))
    return conditions


def _holds(
    connection: Connection, uids: Sequence[str], *conditions: ColumnElement[bool]
) -> defaultdict[str, list[HoldRow]]:
    rows = _of(connection, holds, holds.c.uid, uids, *conditions)
    amounts = read_charges(connection, (row.charge for row in rows))
    own: defaultdict[str, list[HoldRow]] = defaultdict(list)
    for row in rows:
        own[row.uid].append(row_values.hold(row, amounts))
    return own


def _pods(connection: Connection, uids: Sequence[str]) -> defaultdict[str, list[PodRow]]:
    rows = _of(connection, pods, pods.c.job, uids)
    amounts = read_charges(connection, (row.charge for row in rows))
    own: defaultdict[str, list[PodRow]] = defaultdict(list)
    for row in rows:
        own[row.job].append(row_values.pod(row, amounts))
    return own


def _of(
    connection: Connection, table: Table, column: ColumnElement[str], uids: Iterable[str], *conditions: Any
) -> list[Any]:
    """Return the rows of jobs."""
    found: list[Any] = []
    for some in chunks(uids):
        found += connection.execute(select(table).where(among(connection, column, some), *conditions)).all()
    return found


def _valid(rows: Sequence[_Timed], span: Span) -> list[_Timed]:
    """Return the rows that are valid in a span: those from within, and the last one from before."""
    valid = [row for row in rows if row.start <= span.start][-1:]
    valid.extend(row for row in rows if span.start < row.start < span.end)
    return valid
