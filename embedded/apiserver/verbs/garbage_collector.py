"""Cleaning up in the background: what a deleted object leaves behind.

One rule: it only does what a client could do through the API, and a crash between two steps is healed by looking again
at the next start.

Dependents of an owner that is gone are deleted, a namespace or a definition that is being deleted is emptied first, and
the finalizers `orphan` and `foregroundDeletion` are served.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import TypeVar

from crds.api_resources import CRDS, NAMESPACES
from embedded.apiserver.kinds.catalog import Catalog, storage
from embedded.apiserver.storage.journal import Change
from embedded.apiserver.storage.objects import Stored
from embedded.apiserver.storage.store import Place, Store
from embedded.apiserver.verbs.deletions import CONTENT, FOREGROUND, ORPHAN, Deleter, is_held
from embedded.apiserver.verbs.writes import is_released
from embedded.apiserver.wire.options import DeleteOptions
from kube.api import Manifest
from kube.object_errors import ObjectErrors

T = TypeVar("T")

_AT_ONCE = 100
"""Objects handled before requests get their turn."""

_HELD = frozenset({ORPHAN, FOREGROUND, *CONTENT.values()})


class Collector:
    """Looks at the owners that are gone and the objects that wait for what they contain."""

    def __init__(self, store: Store, catalog: Catalog, deleter: Deleter) -> None:
        self._store = store
        self._catalog = catalog
        self._deleter = deleter
        self._gone: dict[str, None] = {}
        self._held: dict[Place, None] = {}
        self._awake = False
        self._errors = ObjectErrors()

    def start(self) -> None:
        """Find what was left undone, then follow every change."""
        self._gone.update(dict.fromkeys(self._store.absent_owners()))
        for resource, stored in self._store.everything():
            self._note_held(resource, stored)
        self._store.follow(self.hear)
        self._wake()

    def hear(self, resource: str, change: Change) -> None:
        """Note what a change makes necessary."""
        if change.kind == "DELETED":
            self._gone[change.object.uid] = None
            self._note_containers(resource, change.object)
        else:
            self._gone.update((uid, None) for uid in change.object.owners if self._store.place_of(uid) is None)
            self._note_held(resource, change.object)
        self._wake()

    def _note_held(self, resource: str, stored: Stored) -> None:
        if stored.deleting:
            self._held[Place(resource, stored.namespace, stored.name)] = None

    def _note_containers(self, resource: str, gone: Stored) -> None:
        places = [self._store.place_of(uid) for uid in gone.owners]
        places.append(Place(storage(NAMESPACES), "", gone.namespace) if gone.namespace else None)
        places.append(Place(storage(CRDS), "", resource))
        for place in filter(None, places):
            found = self._store.get(place.resource, place.namespace, place.name)
            if found is not None:
                self._note_held(place.resource, found)

    def _wake(self) -> None:
        if (self._gone or self._held) and not self._awake:
            self._awake = True
            asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        self._awake = False
        if self._gone:
            uid = next(iter(self._gone))
            if self._dealt_with(f"what {uid} owned", self._collect, uid):
                del self._gone[uid]
        elif self._held:
            place = next(iter(self._held))
            if self._dealt_with(f"{place.resource} {place.namespace}/{place.name}", self._release, place):
                del self._held[place]
        self._wake()

    def _dealt_with(self, subject: str, deal: Callable[[T], bool], what: T) -> bool:
        """Whether nothing is left to do now. What fails is left until it changes: the others wait behind it."""
        try:
            return deal(what)
        except Exception as error:
            self._errors.met(subject, error)
            return True

    def _collect(self, uid: str) -> bool:
        """Delete the dependents of an owner that is gone; whether all are dealt with."""
        if self._store.place_of(uid) is not None:
            return True
        left = [place for place in self._store.dependents(uid) if not self._is_deleting(place)]
        for place in left[:_AT_ONCE]:
            self._abandon(place, uid)
        return len(left) <= _AT_ONCE

    def _abandon(self, place: Place, uid: str) -> None:
        stored = self._store.get(place.resource, place.namespace, place.name)
        if stored is None:
            return
        if any(self._store.place_of(owner) for owner in stored.owners):
            self._disown(place.resource, stored, uid)
        else:
            self._delete(place.resource, stored)

    def _disown(self, resource: str, stored: Stored, uid: str) -> None:
        manifest = stored.manifest()
        own = manifest["metadata"]
        own["ownerReferences"] = [owner for owner in own["ownerReferences"] if owner["uid"] != uid]
        self._store.put(resource, manifest)

    def _delete(self, resource: str, stored: Stored) -> None:
        kind = self._catalog.stored(resource)
        if kind is not None and not stored.deleting:
            self._deleter.delete(kind, stored, DeleteOptions())

    def _is_deleting(self, place: Place) -> bool:
        stored = self._store.get(place.resource, place.namespace, place.name)
        return stored is None or stored.deleting

    def _release(self, place: Place) -> bool:
        """Serve the finalizers of an object that are this collector's; whether nothing is left to do now."""
        stored = self._store.get(place.resource, place.namespace, place.name)
        if stored is None or not stored.deleting:
            return True
        finalizers = _finalizers(stored.manifest())
        if not _HELD.intersection(finalizers):
            return True
        contents = [(resource, item) for resource, item in self._contents(place, stored, finalizers)]
        waiting = [(resource, item) for resource, item in contents if not item.deleting or ORPHAN in finalizers]
        for resource, item in waiting[:_AT_ONCE]:
            if ORPHAN in finalizers and stored.uid in item.owners:
                self._disown(resource, item, stored.uid)
            else:
                self._delete(resource, item)
        if not contents:
            self._unhold(place.resource, stored)
        return not waiting

    def _contents(self, place: Place, stored: Stored, finalizers: list[str]) -> Iterator[tuple[str, Stored]]:
        if CONTENT.get(place.resource) in finalizers and place.resource == storage(NAMESPACES):
            yield from self._store.everything(stored.name)
        elif CONTENT.get(place.resource) in finalizers:
            yield from ((stored.name, item) for item in self._store.items(stored.name))
        else:
            for found in self._store.dependents(stored.uid):
                item = self._store.get(found.resource, found.namespace, found.name)
                if item is not None:
                    yield found.resource, item

    def _unhold(self, resource: str, stored: Stored) -> None:
        manifest = stored.manifest()
        own = manifest["metadata"]
        own["finalizers"] = [name for name in own.get("finalizers") or () if name not in _HELD]
        if not own["finalizers"]:
            del own["finalizers"]
        if resource == storage(NAMESPACES):
            manifest["spec"] = {}
        if is_released(manifest):
            self._store.remove(resource, stored, manifest)
        else:
            self._store.put(resource, manifest)


def _finalizers(manifest: Manifest) -> list[str]:
    """What holds an object; a namespace is held by its spec, too."""
    own = manifest["metadata"].get("finalizers") or []
    return [*own, *(manifest["spec"]["finalizers"] if is_held(manifest) else ())]
