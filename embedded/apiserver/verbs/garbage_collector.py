"""Garbage collection in the background, for the objects that a deleted object leaves behind.

One rule: the collector only makes changes that a client could make through the API, and after a crash between two steps
the next start repeats the search.

The collector deletes the dependents of a deleted owner, empties a namespace or a definition that is being deleted, and
serves the finalizers `orphan` and `foregroundDeletion`.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import TypeVar

from crds.api_resources import CRDS, NAMESPACES
from embedded.apiserver.kinds.catalog import Catalog, storage
from embedded.apiserver.storage.journal import Change
from embedded.apiserver.storage.object_store import ObjectKey, Store
from embedded.apiserver.storage.objects import StoredObject
from embedded.apiserver.verbs.deletions import CONTENT, FOREGROUND, ORPHAN, Deleter, has_contents
from embedded.apiserver.verbs.writes import can_be_removed
from embedded.apiserver.wire.options import DeleteOptions
from kube.object_errors import ObjectErrors

T = TypeVar("T")

_BATCH = 100
"""The objects handled in a row, before requests get their turn."""

_OWN_FINALIZERS = frozenset({ORPHAN, FOREGROUND, *CONTENT.values()})


class GarbageCollector:
    """Handles deleted owners, and objects in deletion that wait for their contents."""

    def __init__(self, store: Store, catalog: Catalog, deleter: Deleter) -> None:
        self._store = store
        self._catalog = catalog
        self._deleter = deleter
        self._deleted_owners: dict[str, None] = {}
        self._terminating: dict[ObjectKey, None] = {}
        self._awake = False
        self._errors = ObjectErrors()

    def start(self) -> None:
        """Find the unfinished work of an earlier process, then follow every change."""
        self._deleted_owners.update(dict.fromkeys(self._store.missing_owners()))
        for resource, stored in self._store.all_items():
            self._note_terminating(resource, stored)
        self._store.subscribe(self.observe)
        self._wake()

    def observe(self, resource: str, change: Change) -> None:
        """Note the work that a change makes necessary."""
        if change.kind == "DELETED":
            self._deleted_owners[change.object.uid] = None
            self._note_containers(resource, change.object)
        else:
            self._deleted_owners.update((uid, None) for uid in change.object.owners if self._store.key_of(uid) is None)
            self._note_terminating(resource, change.object)
        self._wake()

    def _note_terminating(self, resource: str, stored: StoredObject) -> None:
        if stored.deleting:
            self._terminating[ObjectKey(resource, stored.namespace, stored.name)] = None

    def _note_containers(self, resource: str, stored: StoredObject) -> None:
        keys = [self._store.key_of(uid) for uid in stored.owners]
        keys.append(ObjectKey(storage(NAMESPACES), "", stored.namespace) if stored.namespace else None)
        keys.append(ObjectKey(storage(CRDS), "", resource))
        for key in filter(None, keys):
            if (container := self._stored(key)) is not None:
                self._note_terminating(key.resource, container)

    def _wake(self) -> None:
        if (self._deleted_owners or self._terminating) and not self._awake:
            self._awake = True
            asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        self._awake = False
        if self._deleted_owners:
            uid = next(iter(self._deleted_owners))
            if self._try(f"the dependents of {uid}", self._collect, uid):
                del self._deleted_owners[uid]
        elif self._terminating:
            key = next(iter(self._terminating))
            if self._try(f"{key.resource} {key.namespace}/{key.name}", self._release, key):
                del self._terminating[key]
        self._wake()

    def _try(self, subject: str, handle: Callable[[T], bool], key: T) -> bool:
        """Handle a key; return whether nothing is left to do for it now.

        A key that fails is dropped until its object changes, since other keys wait behind it.
        """
        try:
            return handle(key)
        except Exception as error:
            self._errors.record(subject, error)
            return True

    def _collect(self, uid: str) -> bool:
        """Delete the dependents of a deleted owner; return whether all dependents are handled."""
        if self._store.key_of(uid) is not None:
            return True
        found = [(key.resource, self._stored(key)) for key in self._store.dependents(uid)]
        waiting = [(resource, stored) for resource, stored in found if stored is not None and not stored.deleting]
        for resource, stored in waiting[:_BATCH]:
            if any(self._store.key_of(owner) for owner in stored.owners):
                self._disown(resource, stored, uid)
            else:
                self._delete(resource, stored)
        return len(waiting) <= _BATCH

    def _disown(self, resource: str, stored: StoredObject, uid: str) -> None:
        manifest = stored.manifest()
        meta = manifest["metadata"]
        meta["ownerReferences"] = [owner for owner in meta["ownerReferences"] if owner["uid"] != uid]
        self._store.put(resource, manifest)

    def _delete(self, resource: str, stored: StoredObject) -> None:
        kind = self._catalog.by_storage(resource)
        if kind is not None and not stored.deleting:
            self._deleter.delete(kind, stored, DeleteOptions())

    def _stored(self, key: ObjectKey) -> StoredObject | None:
        return self._store.get(key.resource, key.namespace, key.name)

    def _release(self, key: ObjectKey) -> bool:
        """Serve the collector's own finalizers of an object; return whether nothing is left to do now."""
        stored = self._stored(key)
        if stored is None or not stored.deleting:
            return True
        manifest = stored.manifest()
        finalizers = list(manifest["metadata"].get("finalizers") or ())
        finalizers += manifest["spec"]["finalizers"] if has_contents(manifest) else ()  # those of a namespace
        if not _OWN_FINALIZERS.intersection(finalizers):
            return True
        contents = list(self._contents(key, stored, finalizers))
        waiting = [(resource, item) for resource, item in contents if not item.deleting or ORPHAN in finalizers]
        for resource, item in waiting[:_BATCH]:
            if ORPHAN in finalizers and stored.uid in item.owners:
                self._disown(resource, item, stored.uid)
            else:
                self._delete(resource, item)
        if not contents:
            self._remove_finalizers(key.resource, stored)
        return not waiting

    def _contents(
        self, key: ObjectKey, stored: StoredObject, finalizers: list[str]
    ) -> Iterator[tuple[str, StoredObject]]:
        if CONTENT.get(key.resource) in finalizers and key.resource == storage(NAMESPACES):
            yield from self._store.all_items(stored.name)
        elif CONTENT.get(key.resource) in finalizers:
            yield from ((stored.name, item) for item in self._store.items(stored.name))
        else:
            for dependent in self._store.dependents(stored.uid):
                if (item := self._stored(dependent)) is not None:
                    yield dependent.resource, item

    def _remove_finalizers(self, resource: str, stored: StoredObject) -> None:
        manifest = stored.manifest()
        meta = manifest["metadata"]
        meta["finalizers"] = [name for name in meta.get("finalizers") or () if name not in _OWN_FINALIZERS]
        if not meta["finalizers"]:
            del meta["finalizers"]
        if resource == storage(NAMESPACES):
            manifest["spec"] = {}
        if can_be_removed(manifest):
            self._store.remove(resource, stored, manifest)
        else:
            self._store.put(resource, manifest)
