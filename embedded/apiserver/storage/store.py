"""The objects of the embedded cluster in memory, written through to disk in batches.

One rule: a change is visible to nobody outside before its batch is on disk. Answers wait for `durable`, watches are
told by `flush`; if the disk fails, the memory goes back to what the disk has.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import orjson

from embedded.apiserver import status_errors
from embedded.apiserver.storage import objects
from embedded.apiserver.storage.disk import Disk, DiskFailed, Row
from embedded.apiserver.storage.journal import Change, EventKind, Journal
from embedded.apiserver.storage.objects import Stored
from kube.api import Manifest

_SMALL = 4096
"""Bytes that an object may grow by while the disk is full: enough for a status, a deletion, a suspension."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an object is kept: its resource (`plural` or `plural.group`), namespace and name."""

    resource: str
    namespace: str
    name: str


class Store:
    """All objects by place. To be used from one event loop only."""

    def __init__(self, disk: Disk, selectable: Callable[[str], tuple[str, ...]]) -> None:
        self._disk = disk
        self._selectable = selectable
        self._objects: dict[str, dict[str, dict[str, Stored]]] = {}
        self._places: dict[str, Place] = {}
        self._dependents: dict[str, set[Place]] = {}
        self._journals: dict[str, Journal] = {}
        self._pending: list[tuple[str, Change]] = []
        self._batch: asyncio.Future[None] | None = None
        self._followers: list[Callable[[str, Change], None]] = []
        self.revision, rows = disk.load()
        self._floor = self.published = self.revision
        for row in rows:
            manifest = orjson.loads(row.body or b"")
            self._keep(row.resource, objects.read(row.body or b"", manifest, row.version, selectable(row.resource)))

    # Reading

    def get(self, resource: str, namespace: str, name: str) -> Stored | None:
        """One object, or None."""
        return self._objects.get(resource, {}).get(namespace, {}).get(name)

    def items(self, resource: str, namespace: str = "") -> list[Stored]:
        """A resource's objects by namespace and name; of one namespace, or of all."""
        spaces = self._objects.get(resource, {})
        chosen = [spaces.get(namespace, {})] if namespace else [spaces[space] for space in sorted(spaces)]
        return [space[name] for space in chosen for name in sorted(space)]

    def everything(self, namespace: str = "") -> Iterator[tuple[str, Stored]]:
        """All objects with their resources; of one namespace, or of all."""
        for resource in list(self._objects):
            for stored in self.items(resource, namespace):
                yield resource, stored

    def counts(self) -> dict[str, int]:
        """How many objects there are of each resource."""
        return {resource: sum(map(len, spaces.values())) for resource, spaces in self._objects.items()}

    def remembered(self) -> int:
        """How many changes are kept for watches to resume from."""
        return sum(map(len, self._journals.values()))

    def place_of(self, uid: str) -> Place | None:
        """Where the object with this uid lives, or None if it is gone."""
        return self._places.get(uid)

    def dependents(self, uid: str) -> list[Place]:
        """The objects that name this uid as an owner."""
        return sorted(self._dependents.get(uid, ()), key=lambda place: (place.resource, place.namespace, place.name))

    def absent_owners(self) -> list[str]:
        """Owners that somebody names and nobody is."""
        return [uid for uid in self._dependents if uid not in self._places]

    def journal(self, resource: str) -> Journal:
        """The resource's latest changes."""
        found = self._journals.get(resource)
        if found is None:
            found = self._journals[resource] = Journal(self._floor)
        return found

    def follow(self, follower: Callable[[str, Change], None]) -> None:
        """Have every committed change of every resource told, after the watches have been."""
        self._followers.append(follower)

    # Writing

    def put(self, resource: str, manifest: Manifest) -> Stored:
        """Store a new version of an object and return it; its resourceVersion is the next one. Refused (507) if the
        disk is full and this makes an object, or makes one grow."""
        after = objects.seal(manifest, self.revision + 1, self._selectable(resource))
        before = self.get(resource, after.namespace, after.name)
        if self._disk.full and (before is None or len(after.raw) > len(before.raw) + _SMALL):
            raise status_errors.no_room(str(self._disk.refusal()))
        self.revision += 1
        if before:
            self._drop(resource, before)
        self._keep(resource, after)
        self._note(resource, "MODIFIED" if before else "ADDED", after, before)
        return after

    def remove(self, resource: str, before: Stored, manifest: Manifest | None = None) -> Stored:
        """Take an object away; the last state shown to watches is the manifest given, or what was stored."""
        self.revision += 1
        last = objects.seal(manifest or before.manifest(), self.revision, self._selectable(resource))
        self._drop(resource, before)
        self._note(resource, "DELETED", last, before)
        return last

    def _note(self, resource: str, kind: EventKind, shown: Stored, before: Stored | None) -> None:
        if not self._pending:
            loop = asyncio.get_running_loop()
            self._batch = loop.create_future()
            loop.call_soon(self.flush)
        self._pending.append((resource, Change(kind, shown, before)))

    def _keep(self, resource: str, stored: Stored) -> None:
        place = Place(resource, stored.namespace, stored.name)
        self._objects.setdefault(resource, {}).setdefault(stored.namespace, {})[stored.name] = stored
        self._places[stored.uid] = place
        for owner in stored.owners:
            self._dependents.setdefault(owner, set()).add(place)

    def _drop(self, resource: str, stored: Stored) -> None:
        place = Place(resource, stored.namespace, stored.name)
        space = self._objects[resource][stored.namespace]
        del space[stored.name]
        if not space:
            del self._objects[resource][stored.namespace]
        del self._places[stored.uid]
        for owner in stored.owners:
            left = self._dependents[owner]
            left.discard(place)
            if not left:
                del self._dependents[owner]

    # Committing

    async def durable(self) -> None:
        """Wait until everything written so far is on disk. DiskFailed if it could not be kept."""
        if self._batch is not None:
            await asyncio.shield(self._batch)

    def flush(self) -> None:
        """Commit what is pending, then tell the watches."""
        if not self._pending or self._batch is None:
            return
        pending, batch = self._pending, self._batch
        self._pending, self._batch = [], None
        try:
            self._disk.commit(_rows(pending), self.revision)
        except Exception as error:  # also one of which nobody thought: what is pending must neither stay nor be lost
            self._undo(pending)
            _fail(batch, error if isinstance(error, DiskFailed) else DiskFailed(f"cannot keep the changes: {error}"))
            return
        batch.set_result(None)
        for resource, change in pending:
            self.journal(resource).publish(change)
        self.published = pending[-1][1].object.version
        for resource, change in pending:
            for follower in self._followers:
                follower(resource, change)

    def _undo(self, pending: list[tuple[str, Change]]) -> None:
        for resource, change in reversed(pending):
            if change.kind != "DELETED":
                self._drop(resource, change.object)
            if change.before:
                self._keep(resource, change.before)


def _rows(pending: list[tuple[str, Change]]) -> Iterator[Row]:
    for resource, change in pending:
        shown = change.object
        body = None if change.kind == "DELETED" else shown.raw
        yield Row(resource, shown.namespace, shown.name, shown.version, body)


def _fail(batch: asyncio.Future[None], error: DiskFailed) -> None:
    batch.set_exception(error)
    batch.exception()  # a batch of garbage collection has nobody waiting for it
