"""Looking at the queues in Redis without touching them.

One rule: plain reading commands only, so that the read-only account is enough. Whatever somebody wrote there becomes a
fault in the picture, never an error.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import orjson

from crds.keys import JobKey
from queues import order, redis_keys
from queues.inspection import rq_record
from queues.inspection_values import FOREIGN, Fault, RqJob, StorePicture, WorkPicture, WorkRecord
from queues.redis import codec
from queues.redis.connection import Connection, at_once, names, scanned
from queues.values import Entry, Reservation

CHUNK = 200
"""How many keys are asked about in one round trip."""

T = TypeVar("T")


class Reader:
    """Parses what Redis gives, and notes what cannot be parsed."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def parsed(self, where: str, parse: Callable[[], T], otherwise: T) -> T:
        """A value, or `otherwise` and a fault."""
        try:
            return parse()
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
            self.faults.append(Fault(where, f"cannot be read ({type(error).__name__})"))
            return otherwise

    def table(self, where: str, raw: Mapping[bytes, bytes] | None, parse: Callable[[str, bytes], T]) -> dict[str, T]:
        """A hash by field, without the fields that cannot be parsed."""
        found = {}
        for name, text in (raw or {}).items():
            field = name.decode(errors="replace")
            value = self.parsed(f"{where} {field}", lambda field=field, text=text: parse(field, text), None)  # type: ignore[misc]
            if value is not None:
                found[field] = value
        return found

    def number(self, where: str, raw: bytes | None) -> int:
        """A whole number; 0 if it is missing or none."""
        return self.parsed(where, lambda: int(raw or 0), 0)

    def keys(self, where: str, found: Mapping[str, T]) -> dict[JobKey, T]:
        """A table by job key."""
        parsed = {self.parsed(f"{where} {text}", lambda text=text: JobKey.parse(text), None): text for text in found}  # type: ignore[misc]
        return {key: found[text] for key, text in parsed.items() if key is not None}

    def read(self, connection: Connection, commands: Iterable[tuple[str, ...]]) -> list[Any]:
        """Answers of one moment; None, and a fault, from a key that holds something of another kind."""
        asked = list(commands)
        answers = at_once(connection, asked)
        for at, (command, answer) in enumerate(zip(asked, answers, strict=True)):
            if isinstance(answer, Exception):
                self.faults.append(Fault(command[1], "holds something of another kind"))
                answers[at] = None
        return answers

    def scan(self, connection: Connection, kind: str, name: str) -> dict[bytes, Any]:
        """A whole hash or sorted set, in pieces."""
        found = scanned(connection, kind, name)
        if found is None:
            self.faults.append(Fault(name, "holds something of another kind"))
        return found or {}


def store(connection: Connection) -> StorePicture:
    """The queues."""
    reader = Reader()
    known, unknown, foreign = sorted_names(connection)
    fixed = [("GET", redis_keys.EPOCH), ("GET", redis_keys.REBUILDING)]
    hashes = [("HGETALL", name) for name in (redis_keys.RESERVATIONS, redis_keys.PORTS, redis_keys.USAGE)]
    epoch, rebuilding, held, ports, used = reader.read(connection, [*fixed, *hashes])
    specs, pool, counted = _settings(reader, connection)
    usage = reader.table(redis_keys.USAGE, used, lambda _, text: _amounts(text))
    entries = _entries(reader, connection)
    orders = {
        name.removeprefix(redis_keys.ORDER): _places(reader, connection, name, entries)
        for name in known
        if name.startswith(redis_keys.ORDER)
    }
    return StorePicture(
        epoch=reader.number(redis_keys.EPOCH, epoch),
        rebuilding=reader.number(redis_keys.REBUILDING, rebuilding),
        specs=specs,
        pool=pool,
        entries={key: entry for key, (_, entry) in entries.items()},
        places={queue: scores for queue, (scores, _) in orders.items()},
        stray_places={queue: stray for queue, (_, stray) in orders.items() if stray},
        reservations=_reservations(reader, held),
        usage={name: sums for name, sums in usage.items() if name},
        pool_usage=usage.get("", {}),
        counted=counted,
        ports=_ports(reader, ports),
        faults=tuple(reader.faults),
        unknown=tuple(unknown),
        foreign=tuple(foreign),
    )


def work(connection: Connection) -> WorkPicture:
    """The work queue, and RQ behind it."""
    reader = Reader()
    known = names(connection, f"{redis_keys.WORK}*")
    lists = sorted(name for name in known if name.startswith(redis_keys.READY))
    time, turns, count, leases, workers, threads, *ready = reader.read(
        connection,
        [
            ("TIME",),
            ("LRANGE", redis_keys.TENANTS, "0", "-1"),
            ("GET", redis_keys.READY_COUNT),
            ("ZRANGE", redis_keys.LEASES, "0", "-1", "WITHSCORES"),
            ("ZRANGE", redis_keys.WORKERS, "0", "-1", "WITHSCORES"),
            ("HKEYS", redis_keys.THREADS),
            *(("LRANGE", name, "0", "-1") for name in lists),
        ],
    )
    return WorkPicture(
        now=float(time[0]) + float(time[1]) / 1e6,
        records=reader.keys(redis_keys.RECORDS, _records(reader, connection)),
        ready={
            name.removeprefix(redis_keys.READY): frozenset(reader.keys(name, {text.decode(): 0 for text in keys or ()}))
            for name, keys in zip(lists, ready, strict=True)
        },
        turns=frozenset(tenant.decode(errors="replace") for tenant in turns or ()),
        ready_count=reader.number(redis_keys.READY_COUNT, count),
        ready_length=sum(len(keys or ()) for keys in ready),
        leases=reader.keys(redis_keys.LEASES, _scores(leases)),
        workers=_scores(workers),
        threads=frozenset(name.decode(errors="replace") for name in threads or ()),
        rq=tuple(_rq(reader, connection)),
        faults=tuple(reader.faults),
    )


def sorted_names(connection: Connection) -> tuple[list[str], list[str], list[str]]:
    """Names of the keys that are ours, of those under our prefixes that belong to nothing, of some of others."""
    ours: list[str] = []
    unknown: list[str] = []
    foreign: list[str] = []
    for name in names(connection, "*"):
        if redis_keys.known(name):
            ours.append(name)
        elif redis_keys.ours(name):
            unknown.append(name)
        elif len(foreign) < FOREIGN:
            foreign.append(name)
    return sorted(ours), sorted(unknown), sorted(foreign)


def _settings(reader: Reader, connection: Connection) -> tuple[dict[str, Any], Any, Any]:
    """Queues, pool and the names that are counted; accounts are read too, since a coordinator cannot work with broken
    ones."""
    queues, pool, counted, accounts, clock, overtaken = reader.read(
        connection,
        [
            ("HGETALL", redis_keys.QUEUES),
            ("GET", redis_keys.POOL),
            ("GET", redis_keys.COUNTED),
            ("HGETALL", redis_keys.ACCOUNTS),
            ("GET", redis_keys.CLOCK),
            ("HGETALL", redis_keys.OVERTAKEN),
        ],
    )
    reader.table(redis_keys.ACCOUNTS, accounts, lambda _, text: codec.decode_account(text))
    reader.table(redis_keys.OVERTAKEN, overtaken, lambda _, text: codec.decode_overtaken(text))
    reader.parsed(redis_keys.CLOCK, lambda: codec.decode_clock(clock or b""), None)
    return (
        reader.table(redis_keys.QUEUES, queues, lambda _, text: codec.decode_spec(text)),
        reader.parsed(redis_keys.POOL, lambda: codec.decode_amounts(pool or b""), None),
        reader.parsed(redis_keys.COUNTED, lambda: codec.decode_names(counted or b""), None),
    )


def _entries(reader: Reader, connection: Connection) -> dict[JobKey, tuple[str, Entry]]:
    """The place and the entry of every waiting job."""
    raw = reader.scan(connection, "hash", redis_keys.ENTRIES)
    return reader.keys(redis_keys.ENTRIES, reader.table(redis_keys.ENTRIES, raw, _entry))


def _entry(key: str, text: bytes) -> tuple[str, Entry]:
    version, tie, fields = orjson.loads(b"[%b]" % text)
    int(version)
    return order.place_of(tie, key), codec.entry_of(fields)


def _reservations(reader: Reader, raw: Mapping[bytes, bytes] | None) -> dict[JobKey, Reservation]:
    held = reader.table(
        redis_keys.RESERVATIONS, raw, lambda key, text: codec.decode_reservation(JobKey.parse(key), text)
    )
    return {reservation.key: reservation for reservation in held.values()}


def _places(
    reader: Reader, connection: Connection, name: str, entries: Mapping[JobKey, tuple[str, Entry]]
) -> tuple[dict[JobKey, float], frozenset[JobKey]]:
    """The scores of one queue's order; and the jobs of places that are not the ones of their entries."""
    found: dict[JobKey, float] = {}
    stray: set[JobKey] = set()
    for member, score in reader.scan(connection, "zset", name).items():
        place = member.decode(errors="replace")
        key = reader.parsed(f"{name} {place}", partial(JobKey.parse, order.key_in(place)), None)
        if key is not None and key in entries and entries[key][0] != place:
            stray.add(key)
        elif key is not None:
            found[key] = score
    return found, frozenset(stray)


def _amounts(text: bytes) -> dict[str, int]:
    return {name: int(amount) for name, amount in orjson.loads(text).items()}


def _ports(reader: Reader, raw: Mapping[bytes, bytes] | None) -> dict[int, JobKey]:
    held = reader.table(redis_keys.PORTS, raw, lambda port, key: (int(port), JobKey.parse(key.decode())))
    return dict(held.values())


def _scores(flat: list[tuple[bytes, float]] | None) -> dict[str, float]:
    return {member.decode(errors="replace"): float(score) for member, score in flat or ()}


def _records(reader: Reader, connection: Connection) -> dict[str, WorkRecord]:
    """Each record with its place in the lists that bring it back."""
    records: dict[str, WorkRecord] = {}
    there = reader.scan(connection, "hash", redis_keys.RECORDS)
    for keys in _chunks(name.decode(errors="replace") for name in there):
        questions = [
            question
            for key in keys
            for question in (
                ("HGET", redis_keys.RECORDS, key),
                ("ZSCORE", redis_keys.DELAYED, key),
                ("ZSCORE", redis_keys.LEASES, key),
            )
        ]
        answers = reader.read(connection, questions)
        for at, key in enumerate(keys):
            text, due, lease_ends = answers[3 * at : 3 * at + 3]
            if text:
                records[key] = reader.parsed(
                    f"{redis_keys.RECORDS} {key}", partial(_record, text, due, lease_ends), WorkRecord(state="")
                )
    return records


def _record(text: bytes, due: float | None, lease_ends: float | None) -> WorkRecord:
    fields = orjson.loads(text)
    return WorkRecord(
        state=str(fields.get("state", "")),
        tenant=str(fields.get("tenant", "")),
        since=str(fields.get("since", "")),
        token=str(fields.get("token", "")),
        failures=int(fields.get("failures", 0)),
        due=due,
        lease_ends=lease_ends,
    )


def _rq(reader: Reader, connection: Connection) -> Iterator[RqJob]:
    """Every job that RQ knows of, and what it names."""
    lists = {"queue": redis_keys.RQ_WAITING, "intermediate": redis_keys.RQ_INTERMEDIATE}
    sets = {"started": redis_keys.RQ_STARTED, **redis_keys.RQ_REGISTRIES}
    questions = [("LRANGE", name, "0", "-1") for name in lists.values()]
    questions += [("ZRANGE", name, "0", "-1") for name in sets.values()]
    where: dict[str, str] = {}
    for state, ids in zip((*lists, *sets), reader.read(connection, questions), strict=True):
        for each in ids or ():
            where.setdefault(each.decode(errors="replace").partition(":")[0], state)
    stray = (name.removeprefix(redis_keys.RQ_JOB) for name in names(connection, f"{redis_keys.RQ_JOB}*"))
    everything = where | {name: where.get(name, "none") for name in stray}
    for chunk in _chunks(everything):
        functions = _functions(reader, connection, chunk)
        yield from (RqJob(id=each, where=everything[each], function=functions[each]) for each in chunk)


def _functions(reader: Reader, connection: Connection, ids: list[str]) -> dict[str, str]:
    """What jobs name; nothing that is longer than a batch of ours is read."""
    lengths = at_once(connection, [("HSTRLEN", f"{redis_keys.RQ_JOB}{each}", "data") for each in ids])
    readable = [each for each, length in zip(ids, lengths, strict=True) if _is_short(length)]
    data = reader.read(connection, [("HGET", f"{redis_keys.RQ_JOB}{each}", "data") for each in readable])
    named = {each: rq_record.function({b"data": text}) for each, text in zip(readable, data, strict=True) if text}
    return {each: named.get(each, "") for each in ids}


def _is_short(length: object) -> bool:
    return isinstance(length, int) and length <= rq_record.MOST_BYTES


def _chunks(items: Iterable[str]) -> Iterator[list[str]]:
    source = iter(items)
    while chunk := list(islice(source, CHUNK)):
        yield chunk
