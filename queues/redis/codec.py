"""The values of the queue room as JSON text, as Redis keeps them.

One rule: equal values have equal text, so that a script can tell a change by comparing.

Entries, reservations, settings and amounts hold numbers below 2**53, which Lua reads exactly. Accounts and clocks may
grow past that: scripts keep and return them without reading them.
"""

import math
import re
from collections.abc import Iterable
from typing import Any

import orjson

from crds.integers import LARGEST
from crds.keys import JobKey
from crds.resources.amounts import Amounts
from queues import order
from queues.errors import Unstorable
from queues.values import LAW, Account, Clock, Entry, Overtaken, QueueSpec, Reservation

Text = bytes | str
NO_ACCOUNT = Account()
_SEPARATORS = 5
"""Quotation marks around a tie-break and spaces in it."""
_UNKEPT = re.compile(r'[^!-~]|["\\]')
"""Characters that the key of an entry may not have: it is part of a text that is sorted, and is quoted as it is."""
NOTHING_RECORDED = "null"


def check(value: Entry | Reservation) -> None:
    """Unstorable if JSON or Lua would not keep a number of it exactly, or its key cannot be read back."""
    if isinstance(value, Entry):
        numbers: tuple[int, ...] = (value.priority, value.attempt, *value.demand.values())
        if not math.isfinite(value.submitted):
            raise Unstorable(f"{value.key}: it was submitted at {value.submitted}, which is no time")
    else:
        numbers = (value.attempt, value.epoch, value.pick, value.port, *value.charge.values())
    if any(not -LARGEST <= number <= LARGEST for number in numbers):
        raise Unstorable(f"{value.key}: it has a number that is too large to be kept")
    if "/" in value.key.name or "/" in value.key.uid:
        raise Unstorable(f"{value.key}: its name or its uid has a slash")
    if isinstance(value, Entry) and _UNKEPT.search(str(value.key)):
        raise Unstorable(f"{value.key}: its key has a space, a quotation mark or a letter beyond ASCII")


def encode_tie(entry: Entry) -> str:
    """What decides between jobs of one score, as JSON. Unstorable."""
    tie = f'"{order.tie(entry)}"'
    plain = tie.isascii() and tie.isprintable() and tie.count('"') + tie.count(" ") == _SEPARATORS
    if not plain or "\\" in tie or _UNKEPT.search(entry.key.uid) or not math.isfinite(entry.submitted):
        check(entry)
    return tie


def encode_entry(entry: Entry) -> str:
    """All of an entry but its sequence, its key included. What is usual is not said: kind "admit", not returning, no
    port. Unstorable."""
    if not math.isfinite(entry.submitted):
        check(entry)
    return _exact(
        entry.key,
        {
            "key": str(entry.key),
            "queue": entry.queue,
            "submitted": float(entry.submitted),
            "priority": entry.priority,
            "attempt": entry.attempt,
            "demand": dict(entry.demand),
        }
        | ({"kind": entry.kind} if entry.kind != "admit" else {})
        | ({"returning": True} if entry.returning else {})
        | ({"port": True} if entry.port else {}),
    )


def decode_entry(text: Text) -> Entry:
    """An entry's text."""
    return entry_of(orjson.loads(text))


def entry_of(fields: dict[str, Any]) -> Entry:
    """An entry whose text has been parsed. One by one, which is cheaper than all by name: every job comes here."""
    namespace, name, uid = fields["key"].split("/")
    return Entry(
        key=JobKey(namespace, name, uid),
        queue=fields["queue"],
        kind=fields.get("kind", "admit"),
        submitted=fields["submitted"],
        priority=fields["priority"],
        attempt=fields["attempt"],
        demand=fields["demand"],
        returning=fields.get("returning", False),
        port=fields.get("port", False),
    )


def encode_reservation(reservation: Reservation) -> str:
    """A reservation without its key, under which it is kept. Unstorable."""
    return _exact(
        reservation.key,
        {
            "queue": reservation.queue,
            "kind": reservation.kind,
            "attempt": reservation.attempt,
            "epoch": reservation.epoch,
            "charge": dict(reservation.charge),
            "pick": reservation.pick,
            "port": reservation.port,
        },
    )


def decode_reservation(key: JobKey, text: Text) -> Reservation:
    """A reservation's text."""
    return Reservation(key=key, **orjson.loads(text))


def encode_spec(spec: QueueSpec) -> str:
    """A queue's settings."""
    return dump(
        {
            "name": spec.name,
            "weight": spec.weight,
            "open": spec.open,
            "quota": dict(spec.quota),
            "cohort": spec.cohort,
            "borrowing": dict(spec.borrowing),
            "strict": spec.strict,
            "aging_seconds": float(spec.aging_seconds),
        }
    )


def decode_spec(text: Text) -> QueueSpec:
    """A queue's settings' text."""
    return spec_of(orjson.loads(text))


def spec_of(fields: dict[str, Any]) -> QueueSpec:
    """A queue's settings whose text has been parsed."""
    return QueueSpec(**fields)


def encode_rules(spec: QueueSpec) -> str:
    """What scripts go by of a queue's settings: its cohort, and the rest as JSON, which is the same for queues that are
    alike."""
    limits = {"quota": dict(spec.quota), "borrowing": dict(spec.borrowing)}
    return f"{spec.cohort} {dump(limits | {'aging_seconds': float(spec.aging_seconds)})}"


def encode_amounts(amounts: Amounts | None) -> str:
    """Amounts; None (no pool) is the empty text."""
    return "" if amounts is None else dump(dict(amounts))


def decode_amounts(text: Text) -> Amounts | None:
    """Amounts' text."""
    return orjson.loads(text) if text else None


def encode_names(names: Iterable[str]) -> str:
    """Names of resources, sorted."""
    return orjson.dumps(sorted(names)).decode()


def decode_names(text: Text) -> frozenset[str] | None:
    """The text of names of resources; None of the empty text."""
    return frozenset(orjson.loads(text)) if text else None


def encode_account(account: Account) -> str:
    """A queue's account: base, weight, largest; the empty text for one without a weight, which need not be kept."""
    base, weight, largest = account
    return f"{base} {weight} {largest}" if weight else ""


def decode_account(text: Text) -> Account:
    """An account's text; the empty text is a queue that does not count."""
    if not text:
        return NO_ACCOUNT
    base, weight, largest = text.split()
    return Account(base=int(base), weight=int(weight), largest=int(largest))


def encode_clock(clock: Clock) -> str:
    """The clock: served, weights, law."""
    served, weights, law = clock
    return f"{served} {weights} {law}"


def decode_clock(text: Text) -> Clock:
    """A clock's text; the empty text is the beginning. Earlier versions wrote three numbers before the law."""
    if not text:
        return Clock()
    *numbers, law = (text if isinstance(text, str) else text.decode()).split()
    if law != LAW:
        _, _, _ = map(int, numbers)
        return Clock(law=law)
    served, weights = numbers
    return Clock(served=int(served), weights=int(weights), law=law)


def encode_overtaken(overtaken: Overtaken | None) -> str:
    """Which job was overtaken, how often and since when, and what room was kept for it, if any was."""
    if overtaken is None:
        return NOTHING_RECORDED
    fields = {"key": str(overtaken.key), "times": overtaken.times, "since": float(overtaken.since)}
    return dump(fields if overtaken.kept is None else fields | {"kept": dict(overtaken.kept)})


def decode_overtaken(text: Text) -> Overtaken | None:
    """An overtaken job's text."""
    return overtaken_of(orjson.loads(text))


def overtaken_of(fields: dict[str, Any] | None) -> Overtaken | None:
    """An overtaken job whose text has been parsed; None: nothing is recorded."""
    return None if fields is None else Overtaken(**{**fields, "key": JobKey.parse(fields["key"])})


def dump(fields: dict[str, Any]) -> str:
    """JSON text with sorted names."""
    return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS).decode()


def _exact(key: JobKey, fields: dict[str, Any]) -> str:
    """As `dump`. Unstorable, as `check` says: here it costs next to nothing."""
    if "/" in key.name or "/" in key.uid:
        raise Unstorable(f"{key}: its name or its uid has a slash")
    try:
        return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER).decode()
    except orjson.JSONEncodeError as error:
        raise Unstorable(f"{key}: it cannot be kept: {error}") from error
