"""Reading of all that the queues hold in Redis, for an inspection.

One rule: plain reading commands only, so that the read-only user is enough. A value that cannot be read becomes a fault
in the result, never an error.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

import orjson

from crds.keys import JobKey
from queues import order, redis_keys, work_kinds
from queues.chunks import chunks
from queues.inspection import rq_record
from queues.inspection_values import FOREIGN, Fault, RqJob, StoreInspection, WorkInspection, WorkRecord
from queues.redis import codec, fitness
from queues.redis.connection import Connection, key_names, read_atomically, scan
from queues.redis.scripts import Script
from queues.registrations import Member, Registration, parse_member
from queues.values import Entry, Reservation

CHUNK = 200
"""How many keys are read in one round trip."""

WRONG_TYPE = "is a key of another type"
"""The reason of a fault for a key that torchq would make with another Redis type."""

MEMBERS_COMMANDS = (("HGETALL", redis_keys.MEMBERS), ("ZRANGE", redis_keys.WORKERS, "0", "-1", "WITHSCORES"))
"""The commands whose answers `parse_members` expects."""

T = TypeVar("T")


DELETED_AT_ONCE = 500
"""The number of keys that one script deletes."""
_FORGET = Script("store/forget")


class InspectionReader:
    """Reads and parses values from Redis, and collects a fault for each value that cannot be parsed."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def parse(self, where: str, parser: Callable[[], T], default: T) -> T:
        """Return the parser's value. If the reading fails, add a fault and return the default."""
        try:
            return parser()
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
            self.faults.append(Fault(where, f"cannot be read ({type(error).__name__})"))
            return default

    def table(self, where: str, raw: Mapping[bytes, bytes] | None, parser: Callable[[str, bytes], T]) -> dict[str, T]:
        """Return the parsed values of a hash by field, without the fields that cannot be parsed."""
        values = {}
        for name, text in (raw or {}).items():
            field = name.decode(errors="replace")
            value = self.parse(f"{where} {field}", lambda field=field, text=text: parser(field, text), None)  # type: ignore[misc]
            if value is not None:
                values[field] = value
        return values

    def number(self, where: str, raw: bytes | None) -> int:
        """Return a whole number; 0 if the text is missing or not a number."""
        return self.parse(where, lambda: int(raw or 0), 0)

    def keys(self, where: str, table: Mapping[str, T]) -> dict[JobKey, T]:
        """Return a table by job key, without the texts that are not job keys."""
        texts = {self.parse(f"{where} {text}", lambda text=text: JobKey.parse(text), None): text for text in table}  # type: ignore[misc]
        return {key: table[text] for key, text in texts.items() if key is not None}

    def read(self, connection: Connection, commands: Iterable[tuple[str, ...]]) -> list[Any]:
        """Return the answers to commands at one moment. For a key of another type, add a fault and return None."""
        requests = list(commands)
        answers = read_atomically(connection, requests)
        for index, (command, answer) in enumerate(zip(requests, answers, strict=True)):
            if isinstance(answer, Exception):
                self.faults.append(Fault(command[1], WRONG_TYPE))
                answers[index] = None
        return answers

    def scan(self, connection: Connection, kind: str, name: str) -> dict[bytes, Any]:
        """Read a whole hash or sorted set in pieces. For a key of another type, add a fault and return nothing."""
        elements = scan(connection, kind, name)
        if elements is None:
            self.faults.append(Fault(name, WRONG_TYPE))
        return elements or {}


class KeyNames(NamedTuple):
    """The names of all keys of a database, sorted."""

    torchq: list[str]
    """Keys that torchq makes, or RQ for torchq."""
    unknown: list[str]
    """Other keys under the prefixes of torchq and RQ."""
    foreign: list[str]
    """Keys of other programs; at most FOREIGN of them."""


def read_store(connection: Connection) -> StoreInspection:
    """Read everything that the queue store holds."""
    reader = InspectionReader()
    keys = classify_keys(connection)
    fixed = [("GET", redis_keys.OWNER), ("GET", redis_keys.EPOCH), ("GET", redis_keys.REBUILDING)]
    hashes = [("HGETALL", name) for name in (redis_keys.RESERVATIONS, redis_keys.PORTS, redis_keys.USAGE)]
    owner, epoch, rebuilding, reservations, ports, sums = reader.read(connection, [*fixed, *hashes])
    specs, pool, counted = _settings(reader, connection)
    usage = reader.table(redis_keys.USAGE, sums, lambda _, text: _amounts(text))
    entries = _entries(reader, connection)
    orders = {
        name.removeprefix(redis_keys.ORDER): _places(reader, connection, name, entries)
        for name in keys.torchq
        if name.startswith(redis_keys.ORDER)
    }
    table = reader.table(redis_keys.PORTS, ports, lambda port, key: (int(port), JobKey.parse(key.decode())))
    return StoreInspection(
        unfit=fitness.read_problem(connection),
        owner=owner or b"",
        epoch=reader.number(redis_keys.EPOCH, epoch),
        rebuilding=reader.number(redis_keys.REBUILDING, rebuilding),
        specs=specs,
        pool=pool,
        entries={key: entry for key, (_, entry) in entries.items()},
        places={queue: scores for queue, (scores, _) in orders.items()},
        stray_places={queue: stray for queue, (_, stray) in orders.items() if stray},
        reservations=_reservations(reader, reservations),
        usage={name: amounts for name, amounts in usage.items() if name},
        pool_usage=usage.get("", {}),
        counted=counted,
        ports=dict(table.values()),
        faults=tuple(reader.faults),
        unknown=tuple(keys.unknown),
        foreign=tuple(keys.foreign),
    )


def read_work(connection: Connection) -> WorkInspection:
    """Read everything that the work queue and RQ hold."""
    reader = InspectionReader()
    names = key_names(connection, f"{redis_keys.WORK}*")
    lists = sorted(name for name in names if name.startswith(redis_keys.READY))
    time, ends, begins, tells, count, leases, members, older, *ready = reader.read(
        connection,
        [
            ("TIME",),
            *(("LRANGE", name, "0", "-1") for name in redis_keys.LANES),
            ("GET", redis_keys.READY_COUNT),
            ("ZRANGE", redis_keys.LEASES, "0", "-1", "WITHSCORES"),
            *MEMBERS_COMMANDS,
            *(("LRANGE", name, "0", "-1") for name in lists),
        ],
    )
    return WorkInspection(
        now=float(time[0]) + float(time[1]) / 1e6,
        records=reader.keys(redis_keys.RECORDS, _records(reader, connection)),
        ready={
            name.removeprefix(redis_keys.READY): frozenset(reader.keys(name, {text.decode(): 0 for text in keys or ()}))
            for name, keys in zip(lists, ready, strict=True)
        },
        turns=frozenset(lane.decode(errors="replace") for lanes in (ends, begins, tells) for lane in lanes or ()),
        ready_count=reader.number(redis_keys.READY_COUNT, count),
        ready_length=sum(len(keys or ()) for keys in ready),
        leases=reader.keys(redis_keys.LEASES, _scores(leases)),
        members=_by_name(reader.table(redis_keys.MEMBERS, members, parse_member).values(), older),
        rq=tuple(_rq_jobs(reader, connection)),
        faults=tuple(reader.faults),
    )


def classify_keys(connection: Connection) -> KeyNames:
    """Sort the names of all keys by the program that makes them."""
    keys = KeyNames([], [], [])
    for name in key_names(connection, "*"):
        if redis_keys.is_documented(name):
            keys.torchq.append(name)
        elif redis_keys.is_owned(name):
            keys.unknown.append(name)
        elif len(keys.foreign) < FOREIGN:
            keys.foreign.append(name)
    return keys


def _settings(reader: InspectionReader, connection: Connection) -> tuple[dict[str, Any], Any, Any]:
    """Return the queues, the pool and the names of counted resources.

    The accounts are parsed, too, because a coordinator cannot work with an unreadable account."""
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
    reader.parse(redis_keys.CLOCK, lambda: codec.decode_clock(clock or b""), None)
    return (
        reader.table(redis_keys.QUEUES, queues, lambda _, text: codec.decode_spec(text)),
        reader.parse(redis_keys.POOL, lambda: codec.decode_amounts(pool or b""), None),
        reader.parse(redis_keys.COUNTED, lambda: codec.decode_names(counted or b""), None),
    )


def _entries(reader: InspectionReader, connection: Connection) -> dict[JobKey, tuple[str, Entry]]:
    """Return the place in the order and the entry of every waiting job."""
    raw = reader.scan(connection, "hash", redis_keys.ENTRIES)
    return reader.keys(redis_keys.ENTRIES, reader.table(redis_keys.ENTRIES, raw, _entry))


def _entry(key: str, text: bytes) -> tuple[str, Entry]:
    version, tie, fields = orjson.loads(b"[%b]" % text)
    int(version)
    return order.place_of(tie, key), codec.entry_from_fields(fields)


def _reservations(reader: InspectionReader, raw: Mapping[bytes, bytes] | None) -> dict[JobKey, Reservation]:
    table = reader.table(
        redis_keys.RESERVATIONS, raw, lambda key, text: codec.decode_reservation(JobKey.parse(key), text)
    )
    return {reservation.key: reservation for reservation in table.values()}


def _places(
    reader: InspectionReader, connection: Connection, name: str, entries: Mapping[JobKey, tuple[str, Entry]]
) -> tuple[dict[JobKey, float], frozenset[JobKey]]:
    """Return the scores of one queue's order, and the jobs whose place does not match their entry."""
    scores: dict[JobKey, float] = {}
    stray: set[JobKey] = set()
    for member, score in reader.scan(connection, "zset", name).items():
        place = member.decode(errors="replace")
        key = reader.parse(f"{name} {place}", partial(JobKey.parse, order.key_in(place)), None)
        if key is not None and key in entries and entries[key][0] != place:
            stray.add(key)
        elif key is not None:
            scores[key] = score
    return scores, frozenset(stray)


def _amounts(text: bytes) -> dict[str, int]:
    return {name: int(amount) for name, amount in orjson.loads(text).items()}


def parse_members(members: Mapping[bytes, bytes] | None, older: list[tuple[bytes, float]] | None) -> tuple[Member, ...]:
    """Return the members in the answers to MEMBERS_COMMANDS, by name. Raises an error that `parse` expects."""
    return _by_name((parse_member(name.decode(), text) for name, text in (members or {}).items()), older)


def _by_name(members: Iterable[Member], older: list[tuple[bytes, float]] | None) -> tuple[Member, ...]:
    unknown = (
        Member(registration=Registration(worker=worker, threads=0, layout=0), until=ends)
        for worker, ends in _scores(older).items()
    )
    return tuple(sorted((*members, *unknown), key=lambda member: member.registration.worker))


def _scores(flat: list[tuple[bytes, float]] | None) -> dict[str, float]:
    return {member.decode(errors="replace"): float(score) for member, score in flat or ()}


def _records(reader: InspectionReader, connection: Connection) -> dict[str, WorkRecord]:
    """Return each record with its times in the lists of delayed keys and of leases."""
    records: dict[str, WorkRecord] = {}
    names = reader.scan(connection, "hash", redis_keys.RECORDS)
    for keys in chunks((name.decode(errors="replace") for name in names), CHUNK):
        commands = [
            command
            for key in keys
            for command in (
                ("HGET", redis_keys.RECORDS, key),
                ("ZSCORE", redis_keys.DELAYED, key),
                ("ZSCORE", redis_keys.LEASES, key),
            )
        ]
        answers = reader.read(connection, commands)
        for index, key in enumerate(keys):
            text, due, lease_ends = answers[3 * index : 3 * index + 3]
            if text:
                records[key] = reader.parse(
                    f"{redis_keys.RECORDS} {key}", partial(_record, text, due, lease_ends), WorkRecord(state="")
                )
    return records


def _record(text: bytes, due: float | None, lease_ends: float | None) -> WorkRecord:
    fields = orjson.loads(text)
    return WorkRecord(
        state=str(fields.get("state", "")),
        tenant=str(fields.get("tenant", "")),
        kind=work_kinds.parse(fields.get("kind")),
        since=str(fields.get("since", "")),
        token=str(fields.get("token", "")),
        failures=int(fields.get("failures", 0)),
        due=due,
        lease_ends=lease_ends,
    )


def _rq_jobs(reader: InspectionReader, connection: Connection) -> Iterator[RqJob]:
    """Yield every job that RQ knows, with the function that it names."""
    lists = {"queue": redis_keys.RQ_WAITING, "intermediate": redis_keys.RQ_INTERMEDIATE}
    sets = {"started": redis_keys.RQ_STARTED, **redis_keys.RQ_REGISTRIES}
    commands = [("LRANGE", name, "0", "-1") for name in lists.values()]
    commands += [("ZRANGE", name, "0", "-1") for name in sets.values()]
    states: dict[str, str] = {}
    for state, ids in zip((*lists, *sets), reader.read(connection, commands), strict=True):
        for job_id in ids or ():
            states.setdefault(job_id.decode(errors="replace").partition(":")[0], state)
    stray = (name.removeprefix(redis_keys.RQ_JOB) for name in key_names(connection, f"{redis_keys.RQ_JOB}*"))
    states |= {job_id: states.get(job_id, "none") for job_id in stray}
    for chunk in chunks(states, CHUNK):
        functions = _functions(reader, connection, chunk)
        yield from (RqJob(id=job_id, where=states[job_id], function=functions[job_id]) for job_id in chunk)


def _functions(reader: InspectionReader, connection: Connection, ids: list[str]) -> dict[str, str]:
    """Return the function that each job names. A record that is longer than any batch is not read."""
    lengths = read_atomically(connection, [("HSTRLEN", f"{redis_keys.RQ_JOB}{job_id}", "data") for job_id in ids])
    readable = [job_id for job_id, length in zip(ids, lengths, strict=True) if _is_short(length)]
    data = reader.read(connection, [("HGET", f"{redis_keys.RQ_JOB}{job_id}", "data") for job_id in readable])
    functions = {
        job_id: rq_record.function_name({b"data": text}) for job_id, text in zip(readable, data, strict=True) if text
    }
    return {job_id: functions.get(job_id, "") for job_id in ids}


def _is_short(length: object) -> bool:
    return isinstance(length, int) and length <= rq_record.MOST_BYTES


def reset_store(connection: Connection, epoch: int) -> None:
    """Delete everything of the queues except settings and accounts; delete unreadable settings and accounts, too."""
    _FORGET(connection, arguments=[epoch])
    keys = classify_keys(connection)
    names = [
        name for name in keys.torchq if name.startswith(redis_keys.PREFIX) and not name.startswith(redis_keys.WORK)
    ]
    preserved = redis_keys.PRESERVED - _faulty_keys(read_store(connection).faults)
    _delete(connection, epoch, [*(name for name in names if name not in preserved), *keys.unknown])


def reset_work(connection: Connection, epoch: int) -> None:
    """Delete everything of the work queue but registered workers, and every RQ job that no worker runs."""
    _FORGET(connection, arguments=[epoch])
    keys = classify_keys(connection)
    inspection = read_work(connection)
    preserved = redis_keys.PRESERVED - _faulty_keys(inspection.faults)
    names = [name for name in keys.torchq if name.startswith(redis_keys.WORK) and name not in preserved]
    idle = [job.id for job in inspection.rq if job.where != "started"]
    lists = [redis_keys.RQ_WAITING, redis_keys.RQ_INTERMEDIATE, *redis_keys.RQ_REGISTRIES.values()]
    lists += [name for name in keys.torchq if redis_keys.has_batches_of_other_layout(name)]
    records = [name for job_id in idle for name in (f"{redis_keys.RQ_JOB}{job_id}", f"{redis_keys.RQ_RESULTS}{job_id}")]
    _delete(connection, epoch, [*names, *lists, *records, *(_faulty_keys(inspection.faults) & {redis_keys.RQ_STARTED})])


def _faulty_keys(faults: Iterable[Fault]) -> set[str]:
    return {fault.where.partition(" ")[0] for fault in faults}


def _delete(connection: Connection, epoch: int, names: Iterable[str]) -> None:
    for chunk in chunks(names, DELETED_AT_ONCE):
        _FORGET(connection, arguments=[epoch, *chunk])
