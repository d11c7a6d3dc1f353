"""Values that many rows share, each kept once: the parties and the charges.

One rule: nothing is remembered between transactions, since another process may delete what no row names any more.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, delete, select

from history.sql import statements
from history.sql.tables import charges, hidden_holds, holds, parties, pods
from history.store import GroupKey

_PARTY = ("queue", "namespace", "username")


def party_ids(connection: Connection, wanted: Collection[GroupKey]) -> dict[GroupKey, int]:
    """Return the numbers of parties, and add those that are new."""
    return _ids(connection, parties, wanted, json.dumps, lambda key: dict(zip(_PARTY, key, strict=True)))


def charge_ids(connection: Connection, wanted: Collection[str]) -> dict[str, int]:
    """Return the numbers of amounts as text (`row_values.amounts_text`), and add those that are new."""
    return _ids(connection, charges, wanted, str, lambda amounts: {"amounts": amounts})


def read_parties(connection: Connection, wanted: Iterable[int]) -> dict[int, GroupKey]:
    """Return the parties of numbers."""
    return {row.id: GroupKey(row.queue, row.namespace, row.username) for row in _rows(connection, parties, wanted)}


def read_charges(connection: Connection, wanted: Iterable[int | None]) -> dict[int, str]:
    """Return the amounts of numbers, as text."""
    return {row.id: row.amounts for row in _rows(connection, charges, wanted)}


def forget_unused(connection: Connection) -> None:
    """Delete the parties and charges that no row names."""
    for table, column in ((parties, "party"), (charges, "charge")):
        named = [select(each.c[column]).where(each.c[column].is_not(None)) for each in (holds, hidden_holds, pods)]
        connection.execute(delete(table).where(table.c.id.not_in(named[0].union(*named[1:]))))


def _ids(
    connection: Connection,
    table: Table,
    wanted: Collection[Any],
    encode: Callable[[Any], str],
    columns: Callable[[Any], dict[str, str]],
) -> dict[Any, int]:
    digests = {_digest(encode(value)): value for value in wanted}
    known = _known(connection, table, digests)
    missing = [{"digest": digest, **columns(value)} for digest, value in digests.items() if value not in known]
    if missing:
        connection.execute(statements.insert(connection, table).on_conflict_do_nothing(), missing)
        known = _known(connection, table, digests)
    return known


def _known(connection: Connection, table: Table, digests: Mapping[bytes, Any]) -> dict[Any, int]:
    found: dict[Any, int] = {}
    for some in statements.chunks(digests):
        condition = statements.among(connection, table.c.digest, some)
        rows = connection.execute(select(table.c.digest, table.c.id).where(condition))
        found |= {digests[bytes(digest)]: number for digest, number in rows}
    return found


def _rows(connection: Connection, table: Table, wanted: Iterable[int | None]) -> Sequence[Any]:
    numbers = {number for number in wanted if number is not None}
    found: list[Any] = []
    for some in statements.chunks(numbers):
        found += connection.execute(select(table).where(statements.among(connection, table.c.id, some))).all()
    return found


def _digest(value: str) -> bytes:
    return hashlib.blake2b(value.encode(), digest_size=16).digest()
