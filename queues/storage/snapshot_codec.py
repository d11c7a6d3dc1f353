"""The snapshot script's answer as a Snapshot.

One rule: what has been read once is not built again: entries are known by their version, settings by their revision.
"""

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import orjson

from crds.resources.amounts import Amounts
from queues.redis import codec
from queues.values import Behind, Entry, QueueSpec, QueueView, Snapshot, Waiting

KNOWN = 40_000
"""Entries that are kept for the next snapshot, at least; at most twice as many."""

View = tuple[Any, str | None, dict[str, Any] | None, dict[str, int], int, int, list[Any]]
"""Settings or name, account, overtaken, usage, number of waiting entries, how many of them are known, versions,
tie-breaks and entries of the next ones."""
_the_rest_is_there = itemgetter("submitted", "priority")
NOT_SAID = 0
"""In place of an entry that has been shown before, or is not for now."""


class _Unread(Waiting):
    """One whose entry is spelled out once somebody asks for it: most are picked before."""

    __slots__ = ("_fields",)

    def __init__(self, fields: dict[str, Any], version: int) -> None:
        _the_rest_is_there(fields)
        self._entry = None
        self._fields = fields
        self.version = version
        self.queue = fields["queue"]
        self.demand = fields["demand"]
        self.port = "port" in fields
        self.ticket = fields["key"], fields["attempt"], fields.get("kind", "admit")

    def _spelled_out(self) -> Entry:
        return codec.entry_of(self._fields)


class Reader:
    """Reads one store's answers; not safe to share between threads at the same time."""

    def __init__(self) -> None:
        self._epoch = -1
        self._revision = -1
        self.newest = 0
        """The newest version of any entry when the store was read last."""
        self._specs: dict[str, QueueSpec] = {}
        self._pool: Amounts | None = None
        self._entries: dict[int, Waiting] = {}
        self._older: dict[int, Waiting] = {}
        self._demands: dict[tuple[tuple[str, int], ...], Amounts] = {}
        self._demanded: Amounts = {}
        """The last one. Jobs that come one after the other are often alike."""

    def read(self, answer: list[bytes]) -> Snapshot | None:
        """None for a difference to settings that this reader has not seen: only a whole snapshot helps.

        ValueError, KeyError, TypeError or AttributeError for what the script did not write.
        """
        found, views = orjson.loads(answer[0]), orjson.loads(b"[%b]" % b",".join(answer[1:]))
        epoch, revision, whole = found["epoch"], found["revision"], found["whole"]
        if not whole and (epoch, revision) != (self._epoch, self._revision):
            return None
        if epoch != self._epoch:
            self._entries, self._older = {}, {}
        self._epoch, self._revision, self.newest = epoch, revision, found["version"]
        if whole:
            specs = [codec.spec_of(view[0]) for view in views]
            self._specs = {spec.name: spec for spec in specs}
            self._pool = found["pool"]
        return Snapshot(
            epoch=epoch,
            revision=revision,
            pool=self._pool,
            pool_usage=found["usage"],
            clock=codec.decode_clock(found["clock"] or ""),
            queues=tuple(sorted(self._views(views, whole), key=lambda view: view.spec.name)),
            change=found["change"],
            whole=whole,
            departed={name: codec.decode_account(text) for name, text in found["departed"].items()},
        )

    def read_behind(self, parts: list[bytes]) -> tuple[Behind, ...]:
        """The same of what a commit shows beside."""
        found = orjson.loads(b"[%b]" % b",".join(parts))
        return tuple(Behind(queue, after, waiting, self._heads(heads)) for queue, after, waiting, heads in found)

    def _views(self, views: list[View], whole: bool) -> Iterator[QueueView]:
        for named, account, overtaken, usage, waiting, after, heads in views:
            yield QueueView(
                spec=self._specs[named["name"] if whole else named],
                usage=usage,
                waiting=waiting,
                heads=self._heads(heads),
                account=codec.decode_account(account or ""),
                overtaken=codec.overtaken_of(overtaken),
                after=after,
            )

    def _heads(self, heads: list[Any]) -> tuple[Waiting, ...]:
        """Up to the first one that was neither shown before nor now."""
        found, parts = [], iter(heads)
        for version, _, fields in zip(parts, parts, parts, strict=True):
            waiting = self._entries.get(version) or self._met(version, fields)
            if waiting is None:
                break
            found.append(waiting)
        return tuple(found)

    def _met(self, version: int, fields: Any) -> Waiting | None:
        """One that was not shown for long, or never."""
        found = self._older.get(version)
        if found is None:
            if isinstance(fields, int) and fields == NOT_SAID:
                return None
            demand = fields["demand"]
            if demand != self._demanded:
                self._demanded = self._same(demand)
            fields["demand"] = self._demanded
            found = _Unread(fields, version)
        if len(self._entries) >= KNOWN:
            self._entries, self._older = {}, self._entries
        self._entries[version] = found
        return found

    def _same(self, demand: dict[str, int]) -> Amounts:
        """Equal demands are one object."""
        if len(self._demands) > KNOWN:
            self._demands.clear()
        return self._demands.setdefault(tuple(demand.items()), demand)
