"""How holds are written into their tables.

One rule: a job with a row of several holds is decided on as a whole, by `history.merged_holds`, from all its rows that
were kept. The holds of all other jobs are upserts.
"""

from collections.abc import Sequence

from sqlalchemy import Connection, delete, insert, select

from history import merged_holds, precedence
from history.rows import HoldRow
from history.sql import owners, row_values, statements
from history.sql.dictionaries import charge_ids, party_ids, read_charges
from history.sql.row_values import Values
from history.sql.tables import hidden_holds, holds
from history.store import GroupKey


def write(connection: Connection, rows: Sequence[HoldRow]) -> int:
    """Insert or update holds. Return how many differ now."""
    if not rows:
        return 0
    uids = dict.fromkeys(row.uid for row in rows)
    whole = {row.uid for row in rows if row.numbers}
    for some in statements.chunks(uids):
        condition = statements.among(connection, holds.c.uid, some)
        whole |= set(connection.scalars(select(holds.c.uid).where(condition, holds.c.charge.is_(None))))
    single = _values(connection, [row for row in rows if row.uid not in whole])
    changed = statements.upsert(connection, holds, single, "version", "known", "until")
    return changed + sum(_rewrite(connection, uid, [row for row in rows if row.uid == uid]) for uid in whole)


def read(connection: Connection, uid: str) -> list[HoldRow]:
    """Return all holds of a job that are kept, also the hidden ones."""
    stored = [
        row for table in (holds, hidden_holds) for row in connection.execute(select(table).where(table.c.uid == uid))
    ]
    amounts = read_charges(connection, (row.charge for row in stored))
    return [row_values.hold(row, amounts) for row in stored]


def _rewrite(connection: Connection, uid: str, rows: Sequence[HoldRow]) -> int:
    """Write holds of a job that has a row of several holds. Return how many differ now."""
    before = {precedence.key(row): row for row in read(connection, uid)}
    new = {key: row for row in rows if (key := precedence.key(row)) not in before or precedence.wins(row, before[key])}
    if not new:
        return 0
    kept = merged_holds.keep((before | new).values())
    for table, each in ((holds, kept.counted), (hidden_holds, kept.hidden)):
        connection.execute(delete(table).where(table.c.uid == uid))
        if each:
            connection.execute(insert(table), _values(connection, each))
    return sum(row in kept.counted or row in kept.hidden for row in new.values())


def _values(connection: Connection, rows: Sequence[HoldRow]) -> list[Values]:
    known = owners.read(connection, (row.uid for row in rows))
    keys = [GroupKey(row.queue, *known[row.uid]) if row.uid in known else None for row in rows]
    texts = [None if row.numbers else row_values.amounts_text(row.charge, row.unpaid) for row in rows]
    parties = party_ids(connection, {key for key in keys if key})
    charges = charge_ids(connection, {each for each in texts if each})
    return [
        row_values.of_hold(row, parties[key] if key else None, charges[each] if each else None)
        for row, key, each in zip(rows, keys, texts, strict=True)
    ]
