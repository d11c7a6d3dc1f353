"""The queue store in Redis.

One rule: every method runs one atomic script; only a rebuild and long lists take several.
"""

import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import cast

from crds.keys import JobKey
from crds.resources.amounts import Amounts
from queues import limits, redis_keys
from queues.chunks import chunks
from queues.inspection import redis_reader
from queues.inspection_values import StoreInspection
from queues.installation import Installation
from queues.redis import codec, fitness
from queues.redis.connection import (
    Connection,
    ScriptPipeline,
    incarnation,
    read_atomically,
    seconds_since_move,
    translate_parse_errors,
)
from queues.redis.scripts import Script
from queues.storage import commit_codec, snapshot_codec
from queues.store import IdleGrowth, LoweredCharge, PendingCommit, StoreSettings
from queues.values import (
    Batch,
    CommitResult,
    Entry,
    NextEntries,
    QueuePosition,
    QueueSpec,
    Refusal,
    Reservation,
    Snapshot,
)

CHUNK = 500
"""The most keys for one call of a script. The server does nothing else during a call, which takes a few
milliseconds."""

Texts = dict[str, tuple[str, str]]
"""Job key -> tie-break and entry, as JSON."""
NOTHING_PREPARED: tuple[int, Texts] = (-1, {})

_PUT = Script("store/put", preludes=("lib/store",))
_REMOVE = Script("store/remove", preludes=("lib/records", "lib/store", "lib/usage", "lib/made"))
_LOWER = Script("store/lower", preludes=("lib/records", "lib/store", "lib/usage", "lib/made"))
_GROW_IDLE = Script(
    "store/grow_idle",
    preludes=("lib/clock", "lib/records", "lib/mark", "lib/store", "lib/usage", "lib/limits"),
)
_WITHDRAW = Script("store/withdraw", preludes=("lib/store",))
_CONFIGURE = Script("store/configure", preludes=("lib/store", "lib/usage", "lib/cohorts"))
_SNAPSHOT = Script("store/snapshot", preludes=("lib/store", "lib/heads"))
_COMMIT = Script(
    "store/commit",
    preludes=(
        "lib/clock",
        "lib/records",
        "lib/mark",
        "lib/store",
        "lib/heads",
        "lib/usage",
        "lib/limits",
        "lib/mark_many",
    ),
)
_OTHERS = Script("store/others", preludes=("lib/store", "lib/heads"))
_PLACE = Script("store/place", preludes=("lib/store",))
_RESERVATIONS = Script("store/reservations", preludes=("lib/store",))
_REBUILD = Script("store/rebuild", preludes=("lib/store", "lib/usage", "lib/cohorts"))


class RedisStore:
    """A QueueStore on Redis. Safe to share between threads; several processes may use the same Redis."""

    def __init__(
        self,
        connection: Connection,
        settings: StoreSettings | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`clock` replaces the server's time for keys that are marked as work; it is for tests."""
        self._connection = connection
        self._pipeline = ScriptPipeline(connection)
        self._settings = settings or StoreSettings()
        self._clock = clock
        self._epoch = 0
        self._installation: Installation | None = None
        self._reader = snapshot_codec.SnapshotReader()
        self._reader_lock = threading.Lock()
        self._prepared = NOTHING_PREPARED

    def epoch(self) -> int:
        """See QueueStore."""
        epoch, layout = read_atomically(self._connection, [("GET", redis_keys.EPOCH), ("GET", redis_keys.LAYOUT)])
        is_valid = isinstance(epoch, bytes) and epoch.isdigit() and layout == redis_keys.LAYOUT_NUMBER
        return int(epoch) if is_valid else 0  # an unreadable epoch counts as a lost store

    def incarnation(self) -> str:
        """See QueueStore."""
        return incarnation(self._connection)

    def claim(self, installation: Installation) -> None:
        """See QueueStore."""
        self._installation = installation

    def seconds_since_move(self) -> float:
        """See QueueStore."""
        return seconds_since_move(self._connection)

    def problem(self) -> str:
        """See QueueStore."""
        return fitness.problem(self._connection, self._installation)

    def prepare(self, epoch: int, entries: Iterable[Entry]) -> None:
        """See QueueStore."""
        self._empty(epoch)
        texts = _texts(entry for entry in entries if entry.kind == "admit")  # no growth counts before its reservation
        self._put(epoch, texts)
        self._prepared = (epoch, texts)

    def rebuild(self, epoch: int, reservations: Iterable[Reservation], entries: Iterable[Entry]) -> None:
        """See QueueStore."""
        prepared = self._begin(epoch)
        texts = _texts(entries)
        # Removals come before the charges, because a removal would free a charge of its key.
        removals = ((key,) for key in prepared.keys() - texts.keys())
        _REMOVE.run_all(self._connection, ([epoch, "", *chunk] for chunk in _chunks(removals)))
        charges = ((str(reservation.key), codec.encode_reservation(reservation)) for reservation in reservations)
        _REBUILD.run_all(self._connection, ([epoch, "charge", *chunk] for chunk in _chunks(charges)))
        self._put(epoch, {key: text for key, text in texts.items() if prepared.get(key) != text})
        _REBUILD(self._connection, arguments=[epoch, "open"])
        self._epoch = epoch

    def configure(self, queues: Collection[QueueSpec], pool: Amounts | None) -> None:
        """See QueueStore."""
        specs = [text for spec in queues for text in (spec.name, codec.encode_spec(spec), codec.encode_rules(spec))]
        names = codec.encode_names(limits.usage_resources(queues, pool, self._settings.counted))
        _CONFIGURE(self._connection, arguments=[self._epoch, codec.encode_amounts(pool), names, *specs])

    def put(self, entries: Iterable[Entry]) -> None:
        """See QueueStore."""
        self._put(self._epoch, _texts(entries))

    def remove(self, keys: Iterable[JobKey], pods_version: int | None = None) -> list[JobKey]:
        """See QueueStore."""
        return self._free(_REMOVE, ((str(key),) for key in keys), pods_version)

    def withdraw(self, keys: Iterable[JobKey]) -> None:
        """See QueueStore."""
        _WITHDRAW.run_all(self._connection, ([self._epoch, *chunk] for chunk in _chunks((str(key),) for key in keys)))

    def lower(self, charges: Iterable[LoweredCharge], pods_version: int | None = None) -> list[JobKey]:
        """See QueueStore."""
        return self._free(_LOWER, map(_lowered_texts, charges), pods_version)

    def _free(self, script: Script, items: Iterable[tuple[str, ...]], pods_version: int | None) -> list[JobKey]:
        """Run a script that frees charges of jobs. Return the keys whose charge stays."""
        version = "" if pods_version is None else pods_version
        calls = (script(self._connection, arguments=[self._epoch, version, *chunk]) for chunk in _chunks(items))
        return [JobKey.parse(key.decode()) for retained in calls for key in retained]

    def grow_idle(self, growths: Iterable[IdleGrowth], epoch: int, revision: int) -> list[Refusal]:
        """See QueueStore."""
        refusals: list[bytes] = []
        for chunk in _chunks(map(_growth_texts, growths)):
            head: list[str | int] = [epoch, revision, uuid.uuid4().hex, self._now()]
            refusals += _GROW_IDLE(self._connection, arguments=[*head, *chunk])
        return [cast(Refusal, refused.decode()) for refused in refusals]

    def snapshot(
        self,
        heads: int,
        since: int | None = None,
        more: Collection[str] = (),
        known_heads: Mapping[str, int] | None = None,
    ) -> Snapshot:
        """See QueueStore."""
        newest = "" if known_heads is None else self._reader.newest
        after = [value for pair in (known_heads or {}).items() for value in pair]
        arguments = [self._epoch, heads, "" if since is None else since, newest, len(more), *more, *after]
        answer = _SNAPSHOT(self._connection, arguments=arguments)
        with self._reader_lock, translate_parse_errors(self._connection):
            snapshot = self._reader.read(answer)
        return self.snapshot(heads) if snapshot is None else snapshot

    def find_others(self, queue: str, after: int, known: Collection[Amounts], looked_at: int, most: int) -> NextEntries:
        """See QueueStore."""
        arguments: list[str | int] = [self._epoch, queue, after, looked_at, most, *map(codec.encode_amounts, known)]
        answer = _OTHERS(self._connection, arguments=arguments)
        with self._reader_lock, translate_parse_errors(self._connection):
            return self._reader.read_next_entries([answer])[0]

    def pending_commit(self, batch: Batch) -> PendingCommit:
        """See QueueStore."""
        return _PipelinedCommit(self, batch)

    def send(self, batch: Batch, name: str, picks: commit_codec.Encoded) -> Callable[[], list[bytes]]:
        """Send the commit of an encoded batch under a name. Return a function that waits for the answer."""
        ports = self._settings.ports or (0, 0)
        head = (batch.epoch, batch.revision, name, batch.follows, self._now(), *ports, batch.change)
        needs = (value for pair in batch.needs_entries.items() for value in pair)
        return _COMMIT.send(self._pipeline, [*head, *picks, batch.heads, *needs])

    def read_next_entries(self, answer: list[bytes]) -> tuple[NextEntries, ...]:
        """Decode the next entries of queues in the answer to a commit."""
        with self._reader_lock, translate_parse_errors(self._connection):
            return self._reader.read_next_entries(answer[commit_codec.NEXT_ENTRIES :])

    def _now(self) -> str:
        """Return the time for a script; empty: the server's time."""
        return "" if self._clock is None else repr(self._clock())

    def place(self, key: JobKey) -> QueuePosition | None:
        """See QueueStore."""
        answer = _PLACE(self._connection, arguments=[self._epoch, str(key)])
        if not answer:
            return None
        with translate_parse_errors(self._connection):
            text, rank, waiting = answer
            return QueuePosition(entry=codec.decode_entry(text), rank=int(rank), waiting=int(waiting))

    def reservations(self, keys: Sequence[JobKey] | None = None) -> dict[JobKey, Reservation]:
        """See QueueStore."""
        return self._reservations(self._epoch, ["all"] if keys is None else ["some", *map(str, keys)])

    def all_reservations(self) -> dict[JobKey, Reservation]:
        """See QueueStore."""
        return self._reservations(0, ["all"])

    def inspect(self) -> StoreInspection:
        """See QueueStore."""
        return redis_reader.read_store(self._connection)

    def forget(self, epoch: int) -> None:
        """See QueueStore."""
        redis_reader.reset_store(self._connection, epoch)

    def _reservations(self, epoch: int, selection: Sequence[str]) -> dict[JobKey, Reservation]:
        texts = _RESERVATIONS(self._connection, arguments=[epoch, *selection])
        with translate_parse_errors(self._connection):
            pairs = ((JobKey.parse(key.decode()), text) for key, text in zip(texts[::2], texts[1::2], strict=True))
            return {key: codec.decode_reservation(key, text) for key, text in pairs}

    def _begin(self, epoch: int) -> Texts:
        """Empty the store, unless it was prepared for this epoch. Return the entries that wait in the store."""
        prepared, self._prepared = self._prepared, NOTHING_PREPARED
        if prepared[0] == epoch:
            return prepared[1]
        self._empty(epoch)
        return {}

    def _empty(self, epoch: int) -> None:
        """Begin a rebuild with an empty store. Delete the data of a version of torchq that used another layout."""
        layout, *epochs = read_atomically(
            self._connection, [("GET", name) for name in (redis_keys.LAYOUT, redis_keys.EPOCH, redis_keys.REBUILDING)]
        )
        own = self._installation.encode() if self._installation else ""
        if layout != redis_keys.LAYOUT_NUMBER and any((layout, *epochs)):
            fitness.check_owner(self._connection, self._installation)
            redis_reader.reset_store(self._connection, epoch - 1)
            redis_reader.reset_work(self._connection, epoch - 1)
        _REBUILD(self._connection, arguments=[epoch, "begin", own])

    def _put(self, epoch: int, texts: Texts) -> None:
        pieces = _chunks((key, *text) for key, text in texts.items())
        _PUT(self._connection, arguments=[epoch, *next(pieces)])
        _PUT.run_all(self._connection, ([epoch, *piece] for piece in pieces))


class _PipelinedCommit:
    """A commit that the server does while this process continues. Slow work is done while the caller waits for nothing:
    a batch is encoded before its commit begins, and its result is decoded after the next commit has begun.
    """

    def __init__(self, store: RedisStore, batch: Batch) -> None:
        self.name = uuid.uuid4().hex
        self._store, self._batch = store, batch
        self._picks = commit_codec.encode(batch)
        self._wait: Callable[[], list[bytes]] = list
        self._answer: list[bytes] = []

    def begin(self, change: int) -> None:
        """See PendingCommit."""
        self._wait = self._store.send(replace(self._batch, change=change), self.name, self._picks)

    def outcome(self) -> CommitResult:
        """See PendingCommit."""
        self._answer = self._wait()
        return commit_codec.outcome(self._answer)

    def reservations(self) -> tuple[Reservation, ...]:
        """See PendingCommit."""
        return commit_codec.reservations(self._batch, self._answer)

    def next_entries(self) -> tuple[NextEntries, ...]:
        """See PendingCommit."""
        return self._store.read_next_entries(self._answer)


def _texts(entries: Iterable[Entry]) -> Texts:
    return {str(entry.key): (codec.encode_tie(entry), codec.encode_entry(entry)) for entry in entries}


def _lowered_texts(lowered: LoweredCharge) -> tuple[str, str, str]:
    held = {"attempt": lowered.attempt, "grown": lowered.grown, "size": lowered.size}
    return str(lowered.key), codec.dump(held), codec.encode_amounts(lowered.charge)


def _growth_texts(growth: IdleGrowth) -> tuple[str, str, str]:
    wanted = {"attempt": growth.attempt, "grown": growth.grown, "workers": growth.workers}
    return str(growth.key), codec.dump(wanted), codec.encode_amounts(growth.charge)


def _chunks(items: Iterable[tuple[str, ...]]) -> Iterator[list[str]]:
    """Yield the items by CHUNK, flattened. If there are no items, yield one empty list, since the script must run once
    to notice a lost store."""
    pieces = chunks(items, CHUNK)
    yield [*chain.from_iterable(next(pieces, []))]
    for piece in pieces:
        yield [*chain.from_iterable(piece)]
