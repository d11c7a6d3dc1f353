"""Rows as the values of columns, and back.

One rule: what comes back is what was written, but for characters that no database takes.
"""

import json
from collections.abc import Mapping
from typing import Any, Protocol

from crds.resources.amounts import Amounts
from history.precedence import known_end
from history.rows import HoldRow, JobRow, PodRow, WaitRow
from history.sql.tables import OPEN

Values = dict[str, Any]


class _Stored(Protocol):
    """A row of a table as the database returns it."""

    def __getattr__(self, name: str) -> Any: ...


def text(value: str) -> str:
    """Return a text without what PostgreSQL refuses: the character 0, and halves of characters. Names and uids of
    objects have neither."""
    if value.isascii() and "\0" not in value:
        return value
    return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def end(until: int) -> int | None:
    """Return the end of a row; None: it has not come yet."""
    return None if until == OPEN else until


def until(end: int | None) -> int:
    """Return the column of an end."""
    return OPEN if end is None else end


def of_job(row: JobRow) -> Values:
    """Return the columns of a job."""
    return {
        "uid": row.uid,
        "version": row.version,
        "known": known_end(row),
        "namespace": row.namespace,
        "name": row.name,
        "queue": text(row.queue),
        "username": text(row.user),
        "created": row.created,
        "until": until(row.ended),
        "outcome": row.outcome,
        "approximate": row.is_approximate,
        "reason": text(row.reason),
        "message": text(row.message),
        "restarts": row.restarts,
        "disruptions": row.disruptions,
        "result": text(row.result),
        "seen": row.seen,
    }


def job(stored: _Stored) -> JobRow:
    """Return the job in a row of the table."""
    return JobRow(
        uid=stored.uid,
        version=stored.version,
        namespace=stored.namespace,
        name=stored.name,
        queue=stored.queue,
        user=stored.username,
        created=stored.created,
        ended=end(stored.until),
        outcome=stored.outcome,
        is_approximate=stored.approximate,
        reason=stored.reason,
        message=stored.message,
        restarts=stored.restarts,
        disruptions=stored.disruptions,
        result=stored.result,
        seen=stored.seen,
    )


def of_hold(row: HoldRow, party: int | None, charge: int | None) -> Values:
    """Return the columns of a hold. Several holds together have their sums in place of a charge."""
    return {
        "uid": row.uid,
        "number": row.number,
        "numbers": row.numbers,
        "version": row.version,
        "known": known_end(row),
        "queue": text(row.queue),
        "attempt": row.attempt,
        "workers": row.workers,
        "start": row.start,
        "running": row.running,
        "until": until(row.end),
        "ended": text(row.ended),
        "sums": amounts_text(row.seconds, row.unpaid_seconds) if row.numbers else None,
        "others": row.others,
        "approximate": row.is_approximate,
        "party": party,
        "charge": charge,
    }


def hold(stored: _Stored, amounts: Mapping[int, str]) -> HoldRow:
    """Return the hold in a row of the table."""
    charge, unpaid = read_amounts(amounts[stored.charge]) if stored.charge is not None else ({}, {})
    seconds, unpaid_seconds = read_amounts(stored.sums) if stored.sums is not None else ({}, {})
    return HoldRow(
        uid=stored.uid,
        number=stored.number,
        version=stored.version,
        numbers=stored.numbers,
        queue=stored.queue,
        attempt=stored.attempt,
        workers=stored.workers,
        start=stored.start,
        running=stored.running,
        end=end(stored.until),
        ended=stored.ended,
        charge=charge,
        unpaid=unpaid,
        seconds=seconds,
        unpaid_seconds=unpaid_seconds,
        others=stored.others,
        is_approximate=stored.approximate,
    )


def of_wait(row: WaitRow) -> Values:
    """Return the columns of a wait."""
    return {
        "uid": row.uid,
        "start": row.start,
        "version": row.version,
        "known": known_end(row),
        "queue": text(row.queue),
        "until": until(row.end),
        "over": until(row.end),
    }


def wait(stored: _Stored) -> WaitRow:
    """Return the wait in a row of the table."""
    return WaitRow(
        uid=stored.uid, start=stored.start, version=stored.version, queue=stored.queue, end=end(stored.until)
    )


def of_pod(row: PodRow, party: int, charge: int) -> Values:
    """Return the columns of a pod."""
    return {
        "uid": row.uid,
        "version": row.version,
        "known": known_end(row),
        "job": row.job,
        "namespace": row.namespace,
        "queue": text(row.queue),
        "start": row.start,
        "until": until(row.end),
        "approximate": row.is_approximate,
        "party": party,
        "charge": charge,
    }


def pod(stored: _Stored, amounts: Mapping[int, str]) -> PodRow:
    """Return the pod in a row of the table."""
    return PodRow(
        uid=stored.uid,
        version=stored.version,
        job=stored.job,
        namespace=stored.namespace,
        queue=stored.queue,
        start=stored.start,
        end=end(stored.until),
        charge=read_amounts(amounts[stored.charge])[0],
        is_approximate=stored.approximate,
    )


def amounts_text(held: Amounts, unpaid: Amounts) -> str:
    """Return amounts, and the part of them that is idle growth, as one text; the same amounts are the same text."""
    return json.dumps([held, unpaid] if unpaid else [held], sort_keys=True, separators=(",", ":"))


def read_amounts(stored: str) -> tuple[dict[str, int], dict[str, int]]:
    """Return what `amounts_text` was made from."""
    held, *unpaid = json.loads(stored)
    return held, unpaid[0] if unpaid else {}
