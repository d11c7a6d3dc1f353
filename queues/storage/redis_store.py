"""The queue store in Redis.

One rule: every method is one script, which changes what it changes at one moment; a rebuild and long lists are several.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from crds.keys import JobKey
from crds.resources.amounts import Amounts
from queues import limits, redis_keys
from queues.inspection import redis_reader, reset
from queues.inspection_values import StorePicture
from queues.redis import codec
from queues.redis.connection import Connection, Line, at_once, incarnation, understood
from queues.redis.scripts import Script
from queues.storage import commit_codec, snapshot_codec
from queues.storage.commits import PipelinedCommit
from queues.store import PendingCommit, StoreSettings
from queues.values import Batch, Behind, Entry, Place, QueueSpec, Reservation, Snapshot

CHUNK = 500
"""How many keys one script is given at most: a few milliseconds in which the server does nothing else."""

Texts = dict[str, tuple[str, str]]
"""Job key -> tie-break and entry, as JSON."""
NOTHING_PREPARED: tuple[int, Texts] = (-1, {})

_PUT = Script("store/put", preludes=("lib/store",))
_REMOVE = Script("store/remove", preludes=("lib/records", "lib/store", "lib/usage"))
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
_PLACE = Script("store/place", preludes=("lib/store",))
_RESERVATIONS = Script("store/reservations", preludes=("lib/store",))
_REBUILD = Script("store/rebuild", preludes=("lib/store", "lib/usage", "lib/cohorts"))


class RedisStore:
    """QueueStore on a Redis; safe to share between threads and to have in several processes."""

    def __init__(
        self,
        connection: Connection,
        settings: StoreSettings | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`clock` replaces the server's time in what is marked as work; for tests."""
        self._connection = connection
        self._line = Line(connection)
        self._settings = settings or StoreSettings()
        self._clock = clock
        self._epoch = 0
        self._reader = snapshot_codec.Reader()
        self._reading = threading.Lock()
        self._prepared = NOTHING_PREPARED

    def epoch(self) -> int:
        """See QueueStore."""
        found, layout = at_once(self._connection, [("GET", redis_keys.EPOCH), ("GET", redis_keys.LAYOUT)])
        known = isinstance(found, bytes) and found.isdigit() and layout == redis_keys.LAYOUT_NUMBER
        return int(found) if known else 0  # what is no epoch is a loss

    def incarnation(self) -> str:
        """See QueueStore."""
        return incarnation(self._connection)

    def prepare(self, epoch: int, entries: Iterable[Entry]) -> None:
        """See QueueStore."""
        self._empty(epoch)
        texts = _texts(entries)
        self._put(epoch, texts)
        self._prepared = (epoch, texts)

    def rebuild(self, epoch: int, reservations: Iterable[Reservation], entries: Iterable[Entry]) -> None:
        """See QueueStore."""
        there = self._begin(epoch)
        texts = _texts(entries)
        # What has gone is forgotten before anything is charged: this would free it.
        gone = ((key,) for key in there.keys() - texts.keys())
        _REMOVE.each(self._connection, ([epoch, "", *chunk] for chunk in _chunks(gone)))
        held = ((str(each.key), codec.encode_reservation(each)) for each in reservations)
        _REBUILD.each(self._connection, ([epoch, "charge", *chunk] for chunk in _chunks(held)))
        self._put(epoch, {key: text for key, text in texts.items() if there.get(key) != text})
        _REBUILD(self._connection, arguments=[epoch, "open"])
        self._epoch = epoch

    def configure(self, queues: Collection[QueueSpec], pool: Amounts | None) -> None:
        """See QueueStore."""
        specs = [text for spec in queues for text in _settings(spec)]
        names = codec.encode_names(limits.counted_resources(queues, pool, self._settings.counted))
        _CONFIGURE(self._connection, arguments=[self._epoch, codec.encode_amounts(pool), names, *specs])

    def put(self, entries: Iterable[Entry]) -> None:
        """See QueueStore."""
        self._put(self._epoch, _texts(entries))

    def remove(self, keys: Iterable[JobKey], seen: int | None = None) -> list[JobKey]:
        """See QueueStore."""
        kept: list[bytes] = []
        for chunk in _chunks((str(key),) for key in keys):
            kept += _REMOVE(self._connection, arguments=[self._epoch, "" if seen is None else seen, *chunk])
        return [JobKey.parse(key.decode()) for key in kept]

    def snapshot(
        self, heads: int, since: int | None = None, more: Collection[str] = (), known: Mapping[str, int] | None = None
    ) -> Snapshot:
        """See QueueStore."""
        newest = "" if known is None else self._reader.newest
        after = [each for pair in (known or {}).items() for each in pair]
        asked = [self._epoch, heads, "" if since is None else since, newest, len(more), *more, *after]
        answer = _SNAPSHOT(self._connection, arguments=asked)
        with self._reading, understood(self._connection):
            found = self._reader.read(answer)
        return self.snapshot(heads) if found is None else found

    def pending_commit(self, batch: Batch) -> PendingCommit:
        """See QueueStore."""
        return PipelinedCommit(self._send, self._shown, batch)

    def _send(self, batch: Batch, name: str, picks: commit_codec.Encoded) -> Callable[[], list[bytes]]:
        return _COMMIT.later(self._line, self._arguments(batch, name, picks))

    def _shown(self, answer: list[bytes]) -> tuple[Behind, ...]:
        with self._reading, understood(self._connection):
            return self._reader.read_behind(answer[commit_codec.SHOWN :])

    def _arguments(self, batch: Batch, name: str, picks: commit_codec.Encoded) -> list[str | bytes | int | float]:
        """What the commit script is told."""
        first, last = self._settings.ports or (0, 0)
        now = "" if self._clock is None else repr(self._clock())
        head: list[str | int] = [batch.epoch, batch.revision, name, batch.follows, now, first, last, batch.change]
        return [*head, *picks, batch.heads, *(each for pair in batch.hungry.items() for each in pair)]

    def place(self, key: JobKey) -> Place | None:
        """See QueueStore."""
        found = _PLACE(self._connection, arguments=[self._epoch, str(key)])
        if not found:
            return None
        with understood(self._connection):
            text, rank, waiting = found
            return Place(entry=codec.decode_entry(text), rank=int(rank), waiting=int(waiting))

    def reservations(self, keys: Sequence[JobKey] | None = None) -> dict[JobKey, Reservation]:
        """See QueueStore."""
        return self._reservations(self._epoch, ["all"] if keys is None else ["some", *map(str, keys)])

    def all_reservations(self) -> dict[JobKey, Reservation]:
        """See QueueStore."""
        return self._reservations(0, ["all"])

    def inspect(self) -> StorePicture:
        """See QueueStore."""
        return redis_reader.store(self._connection)

    def forget(self, epoch: int) -> None:
        """See QueueStore."""
        reset.store(self._connection, epoch)

    def _reservations(self, epoch: int, which: Sequence[str]) -> dict[JobKey, Reservation]:
        texts = _RESERVATIONS(self._connection, arguments=[epoch, *which])
        with understood(self._connection):
            held = ((JobKey.parse(key.decode()), text) for key, text in _pairs(texts))
            return {key: codec.decode_reservation(key, text) for key, text in held}

    def _begin(self, epoch: int) -> Texts:
        """Empty the store, unless it was prepared; what waits there then."""
        prepared, self._prepared = self._prepared, NOTHING_PREPARED
        if prepared[0] == epoch:
            return prepared[1]
        self._empty(epoch)
        return {}

    def _empty(self, epoch: int) -> None:
        """What another version of torchq left there is of no use."""
        layout, *open_or_not = at_once(
            self._connection, [("GET", name) for name in (redis_keys.LAYOUT, redis_keys.EPOCH, redis_keys.REBUILDING)]
        )
        if layout != redis_keys.LAYOUT_NUMBER and any((layout, *open_or_not)):
            reset.store(self._connection, epoch - 1)
            reset.work(self._connection, epoch - 1)
        _REBUILD(self._connection, arguments=[epoch, "begin"])

    def _put(self, epoch: int, texts: Texts) -> None:
        chunks = _chunks((key, *text) for key, text in texts.items())
        _PUT(self._connection, arguments=[epoch, *next(chunks)])
        _PUT.each(self._connection, ([epoch, *chunk] for chunk in chunks))


def _texts(entries: Iterable[Entry]) -> Texts:
    return {str(entry.key): (codec.encode_tie(entry), codec.encode_entry(entry)) for entry in entries}


def _settings(spec: QueueSpec) -> tuple[str, str, str]:
    return spec.name, codec.encode_spec(spec), codec.encode_rules(spec)


def _pairs(flat: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _chunks(items: Iterable[tuple[str, ...]]) -> Iterator[list[str]]:
    """The items flattened, by CHUNK; the first chunk comes even if it is empty, so that a lost store is noticed."""
    source = iter(items)
    chunk = list(islice(source, CHUNK))
    yield [text for item in chunk for text in item]
    while chunk := list(islice(source, CHUNK)):
        yield [text for item in chunk for text in item]
