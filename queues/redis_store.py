"""The queue store in Redis.

One rule: every method is one script, which changes what it changes at one moment; a rebuild and long lists are several.
"""

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice

from crds.amounts import Amounts
from crds.keys import JobKey
from queues import codec, forget, redis_picture, schema
from queues.connection import Connection, at_once, incarnation, understood
from queues.picture import StorePicture
from queues.scripts import Script
from queues.store import StoreSettings
from queues.values import Batch, Committed, Entry, Pick, Place, QueueSpec, QueueView, Reservation, Snapshot, Waiting

CHUNK = 500
"""How many keys one script is given at most: a few milliseconds in which the server does nothing else."""

NOTHING_PREPARED: tuple[int, dict[str, str]] = (-1, {})

_PUT = Script("store_put", preludes=("store",))
_REMOVE = Script("store_remove", preludes=("store",))
_CONFIGURE = Script("store_configure", preludes=("store",))
_SNAPSHOT = Script("store_snapshot", preludes=("store",))
_COMMIT = Script("store_commit", preludes=("clock", "mark", "store"))
_PLACE = Script("store_place", preludes=("store",))
_RESERVATIONS = Script("store_reservations", preludes=("store",))
_REBUILD = Script("store_rebuild", preludes=("store",))


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
        self._settings = settings or StoreSettings()
        self._clock = clock
        self._epoch = 0
        self._heads: dict[bytes, Entry] = {}
        self._last_heads: dict[bytes, Entry] = {}
        self._prepared: tuple[int, dict[str, str]] = NOTHING_PREPARED

    def epoch(self) -> int:
        """See QueueStore."""
        [found] = at_once(self._connection, [("GET", schema.EPOCH)])
        return int(found) if isinstance(found, bytes) and found.isdigit() else 0  # what is no epoch is a loss

    def incarnation(self) -> str:
        """See QueueStore."""
        return incarnation(self._connection)

    def prepare(self, epoch: int, entries: Iterable[Entry]) -> None:
        """See QueueStore."""
        _REBUILD(self._connection, arguments=[epoch, "begin"])
        texts = _texts(entries)
        self._put(epoch, texts.items())
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
        self._put(epoch, (item for item in texts.items() if there.get(item[0]) != item[1]))
        _REBUILD(self._connection, arguments=[epoch, "open"])
        self._epoch = epoch

    def configure(self, queues: Collection[QueueSpec], pool: Amounts | None) -> None:
        """See QueueStore."""
        specs = [text for spec in queues for text in (spec.name, codec.encode_spec(spec))]
        _CONFIGURE(self._connection, arguments=[self._epoch, codec.encode_amounts(pool), *specs])

    def put(self, entries: Iterable[Entry]) -> None:
        """See QueueStore."""
        self._put(self._epoch, _texts(entries).items())

    def remove(self, keys: Iterable[JobKey], seen: int | None = None) -> list[JobKey]:
        """See QueueStore."""
        kept: list[bytes] = []
        for chunk in _chunks((str(key),) for key in keys):
            kept += _REMOVE(self._connection, arguments=[self._epoch, "" if seen is None else seen, *chunk])
        return [JobKey.parse(key.decode()) for key in kept]

    def snapshot(self, heads: int, since: int | None = None, more: Collection[str] = ()) -> Snapshot:  # noqa: ARG002
        """See QueueStore."""
        epoch, revision, pool, usage, clock, queues = _SNAPSHOT(self._connection, arguments=[self._epoch, heads])
        self._last_heads, self._heads = self._heads, {}
        with understood(self._connection):
            return Snapshot(
                epoch=int(epoch),
                revision=int(revision or 0),
                pool=codec.decode_amounts(pool),
                pool_usage=_usage(usage),
                clock=codec.decode_clock(clock),
                queues=tuple(sorted((self._view(*queue) for queue in queues), key=lambda view: view.spec.name)),
            )

    def _view(
        self, spec: bytes, account: bytes, overtaken: bytes, usage: list[bytes], waiting: int, heads: list[bytes]
    ) -> QueueView:
        """A queue as the snapshot script gives it."""
        return QueueView(
            spec=codec.decode_spec(spec),
            usage=_usage(usage),
            waiting=waiting,
            heads=tuple(Waiting(self._entry(entry), int(version)) for version, entry in _pairs(heads)),
            account=codec.decode_account(account),
            overtaken=codec.decode_overtaken(overtaken),
        )

    def _entry(self, text: bytes) -> Entry:
        """A job's entry; most were in the snapshot before, and are not read again."""
        found = self._last_heads.get(text) or codec.decode_entry(text)
        self._heads[text] = found
        return found

    def commit(self, batch: Batch) -> Committed:
        """See QueueStore."""
        first, last = self._settings.ports or (0, 0)
        now = "" if self._clock is None else repr(self._clock())
        picks = [text for pick in batch.picks for text in _pick(pick)]
        arguments = [batch.epoch, batch.revision, uuid.uuid4().hex, now, first, last, *picks]
        refused, *taken = (text.decode() for text in _COMMIT(self._connection, arguments=arguments))
        keys = (JobKey.parse(key) for key in taken[::2])
        return Committed(tuple(map(codec.decode_reservation, keys, taken[1::2])), refused)

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

    def held(self) -> dict[JobKey, Reservation]:
        """See QueueStore."""
        return self._reservations(0, ["all"])

    def inspect(self) -> StorePicture:
        """See QueueStore."""
        return redis_picture.store(self._connection)

    def forget(self, epoch: int) -> None:
        """See QueueStore."""
        forget.store(self._connection, epoch)

    def _reservations(self, epoch: int, which: Sequence[str]) -> dict[JobKey, Reservation]:
        texts = _RESERVATIONS(self._connection, arguments=[epoch, *which])
        with understood(self._connection):
            held = ((JobKey.parse(key.decode()), text) for key, text in _pairs(texts))
            return {key: codec.decode_reservation(key, text) for key, text in held}

    def _begin(self, epoch: int) -> dict[str, str]:
        """Empty the store, unless it was prepared; what waits there then."""
        prepared, self._prepared = self._prepared, NOTHING_PREPARED
        if prepared[0] == epoch:
            return prepared[1]
        _REBUILD(self._connection, arguments=[epoch, "begin"])
        return {}

    def _put(self, epoch: int, texts: Iterable[tuple[str, str]]) -> None:
        chunks = _chunks(texts)
        _PUT(self._connection, arguments=[epoch, *next(chunks)])
        _PUT.each(self._connection, ([epoch, *chunk] for chunk in chunks))


def _texts(entries: Iterable[Entry]) -> dict[str, str]:
    return {str(entry.key): codec.encode_entry(entry) for entry in entries}


def _pick(pick: Pick) -> tuple[str, int, str]:
    """A pick as the commit script takes it."""
    entry = pick.waiting.entry
    fields = {
        "queue": entry.queue,
        "kind": entry.kind,
        "attempt": entry.attempt,
        "demand": dict(entry.demand),
        "clock": codec.encode_clock(pick.clock),
        "accounts": {name: codec.encode_account(account) for name, account in pick.accounts.items()},
        "overtaken": {name: codec.encode_overtaken(each) for name, each in pick.overtaken.items()},
    }
    return str(entry.key), pick.waiting.version, codec.dump(fields)


def _usage(flat: list[bytes]) -> dict[str, int]:
    return {name.decode(): int(amount) for name, amount in _pairs(flat)}


def _pairs(flat: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _chunks(items: Iterable[tuple[str, ...]]) -> Iterator[list[str]]:
    """The items flattened, by CHUNK; the first chunk comes even if it is empty, so that a lost store is noticed."""
    source = iter(items)
    chunk = list(islice(source, CHUNK))
    yield [text for item in chunk for text in item]
    while chunk := list(islice(source, CHUNK)):
        yield [text for item in chunk for text in item]
