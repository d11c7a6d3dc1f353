"""Kubernetes' garbage collector, as far as ConfigMaps with code need it. The collector takes two steps for each object.

One rule: the collector reads an object, and acts on it later, after other programs had their turn. The collector
deletes an object only if the owners of the object have not changed since the reading.
"""

from collections.abc import Iterator
from typing import NamedTuple

from crds import labels
from crds.api_resources import CONFIG_MAPS, TORCHJOBS
from embedded.apiserver.storage.objects import StoredObject
from tests.faults.api import Api, ApiClient


class _Seen(NamedTuple):
    name: str
    namespace: str
    uid: str
    owners: tuple[str, ...]
    present: frozenset[str]
    """The owners that existed when the object was read."""


class Collector:
    """Deletes ConfigMaps of which no owner exists, and removes owners that do not exist."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._client = ApiClient(api)
        self._seen: _Seen | None = None

    @property
    def done(self) -> bool:
        """Whether the collector has no work left."""
        return self._seen is None and next(self._garbage(), None) is None

    def step(self) -> None:
        """Read an object with an owner that does not exist, or act on the object that was read."""
        if self._seen is None:
            stored, jobs = next(self._garbage())
            present = frozenset(jobs.intersection(stored.owners))
            self._seen = _Seen(stored.name, stored.namespace, stored.uid, stored.owners, present)
            return
        seen, self._seen = self._seen, None
        self._act(seen)

    def _act(self, seen: _Seen) -> None:
        found = [each for each in self._api.objects(CONFIG_MAPS) if each.uid == seen.uid]
        if not found:
            return
        if seen.present:
            self._disown(found[0], {*seen.owners} - seen.present)
        elif found[0].owners == seen.owners:
            self._client.delete(CONFIG_MAPS, seen.name, seen.namespace, uid=seen.uid)

    def _disown(self, stored: StoredObject, gone: set[str]) -> None:
        owners = stored.manifest()["metadata"]["ownerReferences"]
        left = {"metadata": {"ownerReferences": [owner for owner in owners if owner["uid"] not in gone]}}
        self._client.patch(CONFIG_MAPS, stored.name, left, stored.namespace)

    def _garbage(self) -> Iterator[tuple[StoredObject, set[str]]]:
        jobs = {each.uid for each in self._api.objects(TORCHJOBS)}
        for each in self._api.objects(CONFIG_MAPS):
            if labels.CODE in each.labels and not each.deleting and not jobs.issuperset(each.owners):
                yield each, jobs
