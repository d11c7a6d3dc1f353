"""The store that needs nothing but the cluster: ConfigMaps in the namespace of the job.

One rule: a job is an owner of every part of one copy. A part is read again after any change that
another client or the garbage collector makes between two requests.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from coordinator.code import config_maps
from coordinator.code.archive import Archive
from coordinator.code.errors import StoreFailed
from coordinator.code.stores import Mounts
from crds.api_resources import CONFIG_MAPS
from crds.keys import JobKey
from kube import errors
from kube.api import Cluster, Manifest

MOST_COPIES = 1_000
MOST_TRIES = 60
"""How often a part is read again after somebody has changed or deleted it."""
LONGEST_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class ConfigMapStore:
    """Keeps code in immutable ConfigMaps, which all jobs with the same code share."""

    cluster: Cluster
    pause: Callable[[float], object] = time.sleep

    @property
    def limit(self) -> int:
        """See CodeStore."""
        return config_maps.LIMIT

    def source(self, archive: Archive) -> Mounts:
        """See CodeStore. Most jobs use the first copy."""
        return config_maps.source(archive, 1)

    def objects(self, archive: Archive, namespace: str) -> list[Manifest]:
        """See CodeStore."""
        return config_maps.manifests(archive, 1, namespace)

    def keep(self, archive: Archive, owner: JobKey) -> Mounts:
        """See CodeStore. The first copy with room for one more owner is used."""
        for copy in range(1, MOST_COPIES + 1):
            parts = config_maps.manifests(archive, copy, owner.namespace)
            if all(self._keep(part, owner) for part in parts):
                return config_maps.source(archive, copy)
        raise StoreFailed(f"{MOST_COPIES} copies of this code have as many jobs as they may have: delete old jobs")

    def _keep(self, part: Manifest, owner: JobKey) -> bool:
        """Make a job an owner of a part. Return False if the part has no room or is being deleted.

        The first part has room, while a later part has no room, while the garbage collection removes owners one by one.
        """
        name = part["metadata"]["name"]
        for number in range(MOST_TRIES):
            found = self._find(part, owner)
            if found is None:
                continue
            _require_same(found, part, owner.namespace)
            metadata = found["metadata"]
            owners = metadata.get("ownerReferences") or []
            if metadata.get("deletionTimestamp"):
                return False
            if any(each["uid"] == owner.uid for each in owners):
                return True
            if len(owners) >= config_maps.MOST_OWNERS:
                return False
            if self._add(name, owner, owners, metadata["resourceVersion"]):
                return True
            self.pause(min(0.01 * 2**number, LONGEST_PAUSE_SECONDS))
        raise StoreFailed(f"ConfigMap {owner.namespace}/{name} changed {MOST_TRIES} times in a row: try again")

    def _find(self, part: Manifest, owner: JobKey) -> Manifest | None:
        """Return a part as it is stored, and create it if it does not exist; None if the part came in the meantime."""
        metadata = part["metadata"]
        try:
            return self.cluster.get(CONFIG_MAPS, metadata["name"], owner.namespace)
        except errors.NotFound:
            pass
        owned = {**part, "metadata": {**metadata, "ownerReferences": [config_maps.owner_reference(owner)]}}
        try:
            return self.cluster.create(CONFIG_MAPS, owned, owner.namespace)
        except errors.AlreadyExists:
            return None

    def _add(self, name: str, owner: JobKey, owners: list[Manifest], version: str) -> bool:
        """Add an owner to a part of this version. Return False if the ConfigMap has changed or is gone."""
        patch = {"metadata": {"ownerReferences": [*owners, config_maps.owner_reference(owner)]}}
        try:
            self.cluster.patch(CONFIG_MAPS, name, patch, owner.namespace, resource_version=version)
        except (errors.Conflict, errors.NotFound):
            return False
        return True


def _require_same(found: Manifest, part: Manifest, namespace: str) -> None:
    if found.get("binaryData") != part["binaryData"]:
        name = part["metadata"]["name"]
        raise StoreFailed(
            f"ConfigMap {namespace}/{name} has another content than its name says: delete it "
            f"(kubectl -n {namespace} delete configmap {name}) and run again"
        )
