"""Decoding of the snapshot script's answer.

One rule: no value is decoded twice. Entries are recognized by their version, settings by their revision.
"""

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import orjson

from crds.resources.amounts import Amounts
from queues.redis import codec
from queues.values import Entry, NextEntries, QueueSnapshot, QueueSpec, Snapshot, WaitingEntry

CACHED_ENTRIES = 40_000
"""The least number of entries that the cache keeps once it is full; it keeps at most twice as many."""

View = tuple[Any, str | None, dict[str, Any] | None, dict[str, int], int, int, list[Any]]
"""The parts of a queue in the answer, in this order: settings or name, account, overtaken job, usage, number of waiting
entries, number of first entries that are left out, list of version, tie-break and entry of the next ones."""
_require_fields = itemgetter("submitted", "priority")
OMITTED = 0
"""The value that stands for an entry that the script has returned before, or leaves out for now."""


class _LazyWaiting(WaitingEntry):
    """A waiting entry that is decoded when it is first read. Most entries are picked before they are decoded."""

    __slots__ = ("_fields",)
    size = 0
    most = 0

    def __init__(self, fields: dict[str, Any], version: int) -> None:
        _require_fields(fields)
        self._entry, self.gang, self.placeable = None, None, True
        self._fields = fields
        self.version = version
        self.queue = fields["queue"]
        self.demand = fields["demand"]
        self.port = "port" in fields
        self.ticket = fields["key"], fields["attempt"], fields.get("kind", "admit")

    def _decode_entry(self) -> Entry:
        return codec.entry_from_fields(self._fields)


class _LazyCounted(_LazyWaiting):
    """A waiting entry that counts workers. The others need no room for that."""

    __slots__ = ("most", "size")

    def __init__(self, fields: dict[str, Any], version: int) -> None:
        super().__init__(fields, version)
        self.size = fields.get("size", 0)
        self.most = fields.get("most", 0)


class SnapshotReader:
    """A decoder for the answers of one store. Only one thread may use the object at a time."""

    def __init__(self) -> None:
        self._epoch = -1
        self._revision = -1
        self.newest = 0
        """The newest version of any entry in the last answer."""
        self._specs: dict[str, QueueSpec] = {}
        self._pool: Amounts | None = None
        self._entries: dict[int, WaitingEntry] = {}
        """Version -> entry. When it is full, it becomes `_older`."""
        self._older: dict[int, WaitingEntry] = {}
        self._demands: dict[tuple[tuple[str, int], ...], Amounts] = {}
        self._last_demand: Amounts = {}
        """The demand of the last new entry. Consecutive jobs often have the same demand."""

    def read(self, answer: list[bytes]) -> Snapshot | None:
        """Decode an answer. Return None if the answer is a difference to settings that this reader does not know. Then
        the caller needs a whole snapshot.

        Raises ValueError, KeyError, TypeError or AttributeError for data that the script did not write.
        """
        header, views = orjson.loads(answer[0]), orjson.loads(b"[%b]" % b",".join(answer[1:]))
        epoch, revision, whole = header["epoch"], header["revision"], header["whole"]
        if not whole and (epoch, revision) != (self._epoch, self._revision):
            return None
        if epoch != self._epoch:
            self._entries, self._older = {}, {}
        self._epoch, self._revision, self.newest = epoch, revision, header["version"]
        if whole:
            specs = [QueueSpec(**view[0]) for view in views]
            self._specs = {spec.name: spec for spec in specs}
            self._pool = header["pool"]
        return Snapshot(
            epoch=epoch,
            revision=revision,
            pool=self._pool,
            pool_usage=header["usage"],
            clock=codec.decode_clock(header["clock"] or ""),
            queues=tuple(sorted(self._views(views, whole), key=lambda view: view.spec.name)),
            change=header["change"],
            whole=whole,
            departed={name: codec.decode_account(text) for name, text in header["departed"].items()},
        )

    def read_next_entries(self, parts: list[bytes]) -> tuple[NextEntries, ...]:
        """Decode the next entries of each queue that the commit script returned."""
        queues = orjson.loads(b"[%b]" % b",".join(parts))
        return tuple(NextEntries(queue, after, waiting, self._heads(heads)) for queue, after, waiting, heads in queues)

    def _views(self, views: list[View], whole: bool) -> Iterator[QueueSnapshot]:
        for settings, account, overtaken, usage, waiting, after, heads in views:
            yield QueueSnapshot(
                spec=self._specs[settings["name"] if whole else settings],
                usage=usage,
                waiting=waiting,
                heads=self._heads(heads),
                account=codec.decode_account(account or ""),
                overtaken=codec.overtaken_from_fields(overtaken),
                after=after,
            )

    def _heads(self, heads: list[Any]) -> tuple[WaitingEntry, ...]:
        """Return the entries up to the first entry that neither this answer nor the cache has."""
        entries, parts = [], iter(heads)
        for version, _, fields in zip(parts, parts, parts, strict=True):
            waiting = self._entries.get(version) or self._cache(version, fields)
            if waiting is None:
                break
            entries.append(waiting)
        return tuple(entries)

    def _cache(self, version: int, fields: Any) -> WaitingEntry | None:
        """Add an entry to the cache and return it; None if the answer omits an entry that the reader does not know."""
        waiting = self._older.get(version)
        if waiting is None:
            if isinstance(fields, int) and fields == OMITTED:
                return None
            demand = fields["demand"]
            if demand != self._last_demand:
                self._last_demand = self._intern(demand)
            fields["demand"] = self._last_demand
            counted = "size" in fields or "most" in fields
            waiting = _LazyCounted(fields, version) if counted else _LazyWaiting(fields, version)
        if len(self._entries) >= CACHED_ENTRIES:
            self._entries, self._older = {}, self._entries
        self._entries[version] = waiting
        return waiting

    def _intern(self, demand: dict[str, int]) -> Amounts:
        """Return the one object that stands for all equal demands."""
        if len(self._demands) > CACHED_ENTRIES:
            self._demands.clear()
        return self._demands.setdefault(tuple(demand.items()), demand)
