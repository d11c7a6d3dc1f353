"""The objects of the embedded cluster in memory, written through to disk in batches.

One rule: no client sees a change before its batch is on disk. Answers wait for `durable`, and `flush` notifies the
watches. If the disk fails, the memory returns to the state of the disk.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import orjson

from embedded.apiserver import status_errors
from embedded.apiserver.storage import objects
from embedded.apiserver.storage.disk import Disk, DiskFailed, Row
from embedded.apiserver.storage.journal import Change, EventKind, Journal
from embedded.apiserver.storage.objects import StoredObject
from kube.api import Manifest

_SMALL = 4096
"""The bytes that an object may grow by while the disk is full: enough for a status, a deletion, a suspension."""


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """The identity of an object: its resource (`plural` or `plural.group`), namespace and name."""

    resource: str
    namespace: str
    name: str


class Store:
    """All objects by key. Only one event loop may use the store."""

    def __init__(self, disk: Disk, selectable: Callable[[str], tuple[str, ...]]) -> None:
        self._disk = disk
        self._selectable = selectable
        self._objects: dict[str, dict[str, dict[str, StoredObject]]] = {}
        self._keys: dict[str, ObjectKey] = {}
        self._dependents: dict[str, set[ObjectKey]] = {}
        self._journals: dict[str, Journal] = {}
        self._pending: list[tuple[str, Change]] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._subscribers: list[Callable[[str, Change], None]] = []
        self.revision, rows = disk.load()
        self._floor = self.published = self.revision
        for row in rows:
            manifest = orjson.loads(row.body or b"")
            self._insert(row.resource, objects.read(row.body or b"", manifest, row.version, selectable(row.resource)))

    # Reading

    def get(self, resource: str, namespace: str, name: str) -> StoredObject | None:
        """Return one object; None if it does not exist."""
        return self._objects.get(resource, {}).get(namespace, {}).get(name)

    def items(self, resource: str, namespace: str = "") -> list[StoredObject]:
        """Return a resource's objects, sorted by namespace and name; the objects of one namespace, or all objects."""
        spaces = self._objects.get(resource, {})
        selected = [spaces.get(namespace, {})] if namespace else [spaces[space] for space in sorted(spaces)]
        return [space[name] for space in selected for name in sorted(space)]

    def all_items(self, namespace: str = "") -> Iterator[tuple[str, StoredObject]]:
        """Yield all objects with their resources; the objects of one namespace, or all objects."""
        for resource in list(self._objects):
            for stored in self.items(resource, namespace):
                yield resource, stored

    def counts(self) -> dict[str, int]:
        """Return the number of objects of each resource."""
        return {resource: sum(map(len, spaces.values())) for resource, spaces in self._objects.items()}

    def history_size(self) -> int:
        """Return the number of changes that are remembered for watches to resume from."""
        return sum(map(len, self._journals.values()))

    def key_of(self, uid: str) -> ObjectKey | None:
        """Return the key of the object with a uid; None if it was deleted."""
        return self._keys.get(uid)

    def dependents(self, uid: str) -> list[ObjectKey]:
        """Return the keys of the objects that name a uid as an owner."""
        return sorted(self._dependents.get(uid, ()), key=lambda key: (key.resource, key.namespace, key.name))

    def missing_owners(self) -> list[str]:
        """Return the uids that objects name as owners and that no object has."""
        return [uid for uid in self._dependents if uid not in self._keys]

    def journal(self, resource: str) -> Journal:
        """Return the journal of a resource's latest changes."""
        if resource not in self._journals:
            self._journals[resource] = Journal(self._floor)
        return self._journals[resource]

    def subscribe(self, subscriber: Callable[[str, Change], None]) -> None:
        """Call the subscriber for every committed change of every resource, after the watches."""
        self._subscribers.append(subscriber)

    # Writing

    def put(self, resource: str, manifest: Manifest) -> StoredObject:
        """Store a new version of an object and return it; its resourceVersion is the next number.

        Raise StatusError (InsufficientStorage) if the disk is full and the change creates an object, or makes an object
        grow.
        """
        after = objects.seal(manifest, self.revision + 1, self._selectable(resource))
        before = self.get(resource, after.namespace, after.name)
        if self._disk.full and (before is None or len(after.raw) > len(before.raw) + _SMALL):
            raise status_errors.insufficient_storage(str(self._disk.full_error()))
        self.revision += 1
        if before:
            self._drop(resource, before)
        self._insert(resource, after)
        self._record(resource, "MODIFIED" if before else "ADDED", after, before)
        return after

    def remove(self, resource: str, before: StoredObject, manifest: Manifest | None = None) -> StoredObject:
        """Remove an object. Watches get the manifest as its last state, or without a manifest the stored state."""
        self.revision += 1
        last = objects.seal(manifest or before.manifest(), self.revision, self._selectable(resource))
        self._drop(resource, before)
        self._record(resource, "DELETED", last, before)
        return last

    def _record(self, resource: str, kind: EventKind, stored: StoredObject, before: StoredObject | None) -> None:
        if not self._pending:
            asyncio.get_running_loop().call_soon(self.flush)
        self._pending.append((resource, Change(kind, stored, before)))

    def _insert(self, resource: str, stored: StoredObject) -> None:
        key = ObjectKey(resource, stored.namespace, stored.name)
        self._objects.setdefault(resource, {}).setdefault(stored.namespace, {})[stored.name] = stored
        self._keys[stored.uid] = key
        for owner in stored.owners:
            self._dependents.setdefault(owner, set()).add(key)

    def _drop(self, resource: str, stored: StoredObject) -> None:
        key = ObjectKey(resource, stored.namespace, stored.name)
        space = self._objects[resource][stored.namespace]
        del space[stored.name]
        if not space:
            del self._objects[resource][stored.namespace]
        del self._keys[stored.uid]
        for owner in stored.owners:
            keys = self._dependents[owner]
            keys.discard(key)
            if not keys:
                del self._dependents[owner]

    # Committing

    async def durable(self) -> None:
        """Wait until all changes so far are on disk. Raise DiskFailed if the changes could not be stored."""
        if self._pending:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def flush(self) -> None:
        """Commit the pending changes, then notify the watches and the subscribers."""
        if not self._pending:
            return
        pending, waiters = self._pending, [waiter for waiter in self._waiters if not waiter.done()]
        self._pending, self._waiters = [], []
        try:
            self._disk.commit(_rows(pending), self.revision)
        except Exception as error:  # any exception: the pending changes must neither stay in memory nor block the batch
            self._undo(pending)
            failure = error if isinstance(error, DiskFailed) else DiskFailed(f"cannot store the changes: {error}")
            for waiter in waiters:
                waiter.set_exception(failure)
            return
        for waiter in waiters:
            waiter.set_result(None)
        for resource, change in pending:
            self.journal(resource).publish(change)
        self.published = pending[-1][1].object.version
        for resource, change in pending:
            for subscriber in self._subscribers:
                subscriber(resource, change)

    def _undo(self, pending: list[tuple[str, Change]]) -> None:
        for resource, change in reversed(pending):
            if change.kind != "DELETED":
                self._drop(resource, change.object)
            if change.before:
                self._insert(resource, change.before)


def _rows(pending: list[tuple[str, Change]]) -> Iterator[Row]:
    for resource, change in pending:
        stored = change.object
        body = None if change.kind == "DELETED" else stored.raw
        yield Row(resource, stored.namespace, stored.name, stored.version, body)
