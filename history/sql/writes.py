"""How rows are written: by upserts that an older version never wins.

One rule: all statements are in the caller's transaction, the only one that writes. What they leave depends on the rows
that were ever written, not on their order.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from sqlalchemy import Connection

from history import precedence
from history.rows import GapRow, HoldRow, JobRow, PodRow, PoolRow, QueueRow, Row, WaitRow
from history.sql import owners, row_values, statements, written_holds, written_waits
from history.sql.dictionaries import charge_ids, party_ids
from history.sql.row_values import Values
from history.sql.tables import gaps, jobs, pods, pools, queues
from history.store import GroupKey

_Kind = TypeVar("_Kind", bound=Row)


def write(connection: Connection, rows: Iterable[Row]) -> int:
    """Insert or update rows. Return how many differ now."""
    batch: dict[precedence.Key, Row] = {}
    for row in rows:
        key = precedence.key(row)
        if key not in batch or precedence.wins(row, batch[key]):
            batch[key] = row
    changed = _write_jobs(connection, _of(batch, JobRow))
    changed += written_holds.write(connection, _of(batch, HoldRow))
    changed += written_waits.write(connection, _of(batch, WaitRow), (job.uid for job in _of(batch, JobRow)))
    changed += _write_pods(connection, _of(batch, PodRow))
    changed += statements.upsert(connection, queues, [_of_queue(row) for row in _of(batch, QueueRow)], "version")
    changed += statements.upsert(connection, pools, [_of_pool(row) for row in _of(batch, PoolRow)], "amounts")
    shorter = [{"start": row.start, "until": row.end} for row in _of(batch, GapRow)]
    return changed + statements.upsert(connection, gaps, shorter, "until", is_falling=True)


def _of(batch: Mapping[precedence.Key, Row], kind: type[_Kind]) -> list[_Kind]:
    return [row for row in batch.values() if isinstance(row, kind)]


def _write_jobs(connection: Connection, rows: Sequence[JobRow]) -> int:
    before = owners.read(connection, (row.uid for row in rows))
    changed = statements.upsert(
        connection, jobs, [row_values.of_job(row) for row in rows], "version", "known", "seen", "until"
    )
    owners.follow(connection, [row.uid for row in rows if before.get(row.uid) != (row.namespace, row.user)])
    return changed


def _write_pods(connection: Connection, rows: Sequence[PodRow]) -> int:
    known = owners.read(connection, (row.job for row in rows))
    keys = {row.uid: GroupKey(row.queue, *known.get(row.job, (row.namespace, ""))) for row in rows}
    texts = {row.uid: row_values.amounts_text(row.charge, {}) for row in rows}
    parties, charges = party_ids(connection, keys.values()), charge_ids(connection, texts.values())
    values = [row_values.of_pod(row, parties[keys[row.uid]], charges[texts[row.uid]]) for row in rows]
    return statements.upsert(connection, pods, values, "version", "known", "until")


def _of_queue(row: QueueRow) -> Values:
    return {"name": row_values.text(row.name), "start": row.start, "version": row.version, "weight": row.weight}


def _of_pool(row: PoolRow) -> Values:
    return {"start": row.start, "amounts": json.dumps(row.amounts, sort_keys=True)}
