"""Encoding of the values of the queues as JSON text for Redis, and decoding.

One rule: equal values have equal text, so that a script notices a change by comparing texts.

Entries, reservations, settings and amounts have numbers below 2**53, which Lua reads exactly. Accounts and clocks may
have larger numbers; scripts store and return their text without reading it.
"""

import math
import re
from collections.abc import Iterable
from typing import Any

import orjson

from crds.integers import LARGEST
from crds.keys import JobKey
from crds.resources import amounts
from crds.resources.amounts import NOTHING, Amounts
from queues import order
from queues.errors import Unstorable
from queues.values import ACCOUNT_SCHEME, Account, Clock, Entry, OvertakenJob, QueueSpec, Reservation

Text = bytes | str
NO_ACCOUNT = Account()
_SEPARATORS = 5
"""The number of quotation marks and spaces in a well-formed tie-break as JSON, its enclosing quotation marks
included."""
_FORBIDDEN_IN_KEYS = re.compile(r'[^!-~]|["\\]')
"""Characters that an entry's key may not have, because the key is part of a sorted text and is quoted without
escapes."""
NOT_OVERTAKEN = "null"
"""The text of a queue without an overtaken job."""


def check(value: Entry | Reservation) -> None:
    """Raise Unstorable if JSON or Lua would not keep a number of the value exactly, or its key could not be read
    back."""
    if isinstance(value, Entry):
        counts = (value.priority, value.attempt, value.size, value.most, value.step, value.grown, value.idle)
        largest = amounts.add(value.demand, amounts.scale(value.unit, value.most))
        numbers: tuple[int, ...] = (*counts, *value.demand.values(), *value.unit.values(), *largest.values())
        if value.most < 0 or value.step < 1 or value.idle < 0:
            wanted = f"{value.most} further workers in steps of {value.step}, and {value.idle} idle ones"
            raise Unstorable(f"{value.key}: it asks for {wanted}")
        if not math.isfinite(value.submitted):
            raise Unstorable(f"{value.key}: its time of submission is {value.submitted}, which is not a time")
    else:
        counts = (value.attempt, value.epoch, value.pick, value.port, value.size, value.grown, value.idle)
        numbers = (*counts, *value.charge.values())
    if any(not -LARGEST <= number <= LARGEST for number in numbers):
        raise Unstorable(f"{value.key}: it has a number that is too large to be stored")
    if "/" in value.key.name or "/" in value.key.uid:
        raise Unstorable(f"{value.key}: its name or its uid has a slash")
    if isinstance(value, Entry) and _FORBIDDEN_IN_KEYS.search(str(value.key)):
        raise Unstorable(f"{value.key}: its key has a space, a quotation mark or a letter beyond ASCII")


def encode_tie(entry: Entry) -> str:
    """Return the tie-break between jobs of one score as JSON. Raises Unstorable."""
    tie = f'"{order.tie(entry)}"'
    is_plain = tie.isascii() and tie.isprintable() and tie.count('"') + tie.count(" ") == _SEPARATORS
    if not is_plain or "\\" in tie or _FORBIDDEN_IN_KEYS.search(entry.key.uid) or not math.isfinite(entry.submitted):
        check(entry)
    return tie


def encode_entry(entry: Entry) -> str:
    """Encode an entry with its key and without its sequence. Defaults are left out: kind "admit", returning false, port
    false, and the defaults of further workers. Raises Unstorable."""
    if entry.most or entry.idle or not math.isfinite(entry.submitted):
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
        | ({"port": True} if entry.port else {})
        | (_worker_fields(entry) if entry.size or entry.unit or entry.grown or entry.idle else {}),
    )


def _worker_fields(entry: Entry) -> dict[str, Any]:
    """Return the fields of an entry that counts workers, without defaults."""
    fields: dict[str, Any] = {"size": entry.size, "unit": dict(entry.unit), "most": entry.most}
    fields |= {"grown": entry.grown, "idle": entry.idle}
    return {name: value for name, value in fields.items() if value} | ({"step": entry.step} if entry.step != 1 else {})


def decode_entry(text: Text) -> Entry:
    """Decode an entry."""
    return entry_from_fields(orjson.loads(text))


def entry_from_fields(fields: dict[str, Any]) -> Entry:
    """Return the entry with these fields. Each field is passed by itself, which is faster than `Entry(**fields)`: this
    function runs for every job."""
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
        size=fields.get("size", 0),
        unit=fields.get("unit", NOTHING),
        most=fields.get("most", 0),
        step=fields.get("step", 1),
        grown=fields.get("grown", 0),
        idle=fields.get("idle", 0),
    )


def encode_reservation(reservation: Reservation) -> str:
    """Encode a reservation without its key, which is the field of the hash. A size, a payment or a number of growths,
    of idle or of gained workers of 0, and unknown nodes, are left out. Raises Unstorable."""
    more = {name: getattr(reservation, name) for name in ("size", "grown", "idle", "paid", "gained", "nodes")}
    fields = {
        "queue": reservation.queue,
        "kind": reservation.kind,
        "attempt": reservation.attempt,
        "epoch": reservation.epoch,
        "charge": dict(reservation.charge),
        "pick": reservation.pick,
        "port": reservation.port,
    }
    return _exact(reservation.key, fields | {name: value for name, value in more.items() if value})


def decode_reservation(key: JobKey, text: Text) -> Reservation:
    """Decode a reservation."""
    return Reservation(key=key, **orjson.loads(text))


def encode_spec(spec: QueueSpec) -> str:
    """Encode a queue's settings."""
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
    """Decode a queue's settings."""
    return QueueSpec(**orjson.loads(text))


def encode_rules(spec: QueueSpec) -> str:
    """Encode the settings that scripts read: the cohort, a space, and the other settings as JSON. Queues with equal
    limits have one JSON text.
    """
    limits = {"quota": dict(spec.quota), "borrowing": dict(spec.borrowing)}
    return f"{spec.cohort} {dump(limits | {'aging_seconds': float(spec.aging_seconds)})}"


def encode_amounts(amounts_or_none: Amounts | None) -> str:
    """Encode amounts. None (no pool) is the empty text."""
    return "" if amounts_or_none is None else dump(dict(amounts_or_none))


def decode_amounts(text: Text) -> Amounts | None:
    """Decode amounts."""
    return orjson.loads(text) if text else None


def encode_names(names: Iterable[str]) -> str:
    """Encode names of resources, sorted."""
    return orjson.dumps(sorted(names)).decode()


def decode_names(text: Text) -> frozenset[str] | None:
    """Decode names of resources. The empty text is None."""
    return frozenset(orjson.loads(text)) if text else None


def encode_account(account: Account) -> str:
    """Encode a queue's account: base, weight, largest. An account without a weight, which is not stored, is the empty
    text."""
    base, weight, largest = account
    return f"{base} {weight} {largest}" if weight else ""


def decode_account(text: Text) -> Account:
    """Decode an account. The empty text is an account without a weight."""
    if not text:
        return NO_ACCOUNT
    base, weight, largest = text.split()
    return Account(base=int(base), weight=int(weight), largest=int(largest))


def encode_clock(clock: Clock) -> str:
    """Encode the clock: served, weights, scheme. Where the scheme does not count jobs, a 0 comes before the scheme:
    version 0.2 knows one scheme with two numbers, and reads three numbers before every other scheme.
    """
    served, weights, scheme = clock
    return f"{served} {weights} {scheme}" if scheme == ACCOUNT_SCHEME else f"{served} {weights} 0 {scheme}"


def decode_clock(text: Text) -> Clock:
    """Decode a clock. The empty text is the first clock. Earlier versions wrote three numbers before the scheme."""
    if not text:
        return Clock()
    *numbers, scheme = (text if isinstance(text, str) else text.decode()).split()
    if scheme.partition(":")[0] != ACCOUNT_SCHEME:
        _, _, _ = map(int, numbers)
        return Clock(scheme=scheme)
    served, weights, *_ = numbers
    return Clock(served=int(served), weights=int(weights), scheme=scheme)


def encode_overtaken(overtaken: OvertakenJob | None) -> str:
    """Encode an overtaken job: its key, how often and since when it was overtaken, the room reserved for it, if there
    is such room, since when, until when that is paid, how often it was in vain, whether its patience has ended and it
    has an open claim, until when its cohort collects what it asks for, and how often that was in vain."""
    if overtaken is None:
        return NOT_OVERTAKEN
    fields = {"key": str(overtaken.key), "times": overtaken.times, "since": float(overtaken.since)}
    kept = {} if overtaken.kept is None else {"kept": dict(overtaken.kept), "paid": float(overtaken.paid)}
    names = ("kept_since", "vain", "collected_until", "uncollected")
    numbers = {name: number for name in names if (number := getattr(overtaken, name))}
    flags = {name: True for name in ("late", "impatient", "claimed") if getattr(overtaken, name)}
    return dump(fields | kept | numbers | flags)


def decode_overtaken(text: Text) -> OvertakenJob | None:
    """Decode an overtaken job."""
    return overtaken_from_fields(orjson.loads(text))


def overtaken_from_fields(fields: dict[str, Any] | None) -> OvertakenJob | None:
    """Return the overtaken job with these fields; None for a queue without one."""
    return None if fields is None else OvertakenJob(**{**fields, "key": JobKey.parse(fields["key"])})


def dump(fields: dict[str, Any]) -> str:
    """Return JSON text with sorted names."""
    return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS).decode()


def _exact(key: JobKey, fields: dict[str, Any]) -> str:
    """Return JSON text with sorted names. Raises Unstorable as `check` does, at almost no cost."""
    if "/" in key.name or "/" in key.uid:
        raise Unstorable(f"{key}: its name or its uid has a slash")
    try:
        return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER).decode()
    except orjson.JSONEncodeError as error:
        raise Unstorable(f"{key}: it cannot be stored: {error}") from error
