"""Deleting objects: at once, after the finalizers, or after the node has stopped a pod.

One rule: an object goes only when nothing holds it any more: no finalizer, no grace period.
"""

from collections.abc import Callable
from dataclasses import dataclass

from crds.api_resources import CRDS, NAMESPACES, Resource
from embedded.apiserver import status_errors
from embedded.apiserver.kinds import metadata
from embedded.apiserver.kinds.catalog import Kind, storage
from embedded.apiserver.storage.objects import Stored, encode
from embedded.apiserver.storage.store import Store
from embedded.apiserver.wire.options import DeleteOptions
from kube.api import Manifest

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
PROTECTED_NAMESPACES = ("default", "kube-system")
CONTENT = {
    storage(NAMESPACES): "kubernetes",
    storage(CRDS): "customresourcecleanup.apiextensions.k8s.io",
}
"""Kinds whose objects contain others, and the finalizer (a namespace's in its spec) that holds them until those are
gone."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """What a deletion has left."""

    raw: bytes
    """The object's last state."""
    gone: bool
    """Whether it is gone; else it waits for finalizers or for its node."""


class Deleter:
    """Deletes objects of every kind."""

    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now

    def delete(self, kind: Kind, current: Stored, options: DeleteOptions) -> Deleted:
        """Delete an object, or mark it for deletion."""
        _check_preconditions(kind.resource, current, options)
        if kind.resource == NAMESPACES and current.name in PROTECTED_NAMESPACES:
            raise status_errors.forbidden(NAMESPACES, current.name, "this namespace may not be deleted")
        manifest = current.manifest()
        grace = grace_period(kind, manifest, options.grace)
        finalizers = _finalizers(kind, manifest, options.propagation)
        if grace or finalizers or is_held(manifest):
            return Deleted(self._mark(kind, current, manifest, (grace, finalizers), options), gone=False)
        return Deleted(self._remove(kind, current, manifest, options), gone=True)

    def _remove(self, kind: Kind, current: Stored, manifest: Manifest, options: DeleteOptions) -> bytes:
        if kind.graceful and manifest["metadata"].get("deletionGracePeriodSeconds") != 0:
            own = manifest["metadata"]
            if "deletionTimestamp" not in own and kind.generation:
                own["generation"] = own.get("generation", 0) + 1
            own.setdefault("deletionTimestamp", metadata.timestamp(self._now()))
            own["deletionGracePeriodSeconds"] = 0
            if not options.dry_run:  # told to watchers first, as by a Kubernetes API server
                current = self._store.put(kind.storage, manifest)
        return encode(manifest) if options.dry_run else self._store.remove(kind.storage, current, manifest).raw

    def _mark(
        self, kind: Kind, current: Stored, manifest: Manifest, held: tuple[int, list[str]], options: DeleteOptions
    ) -> bytes:
        own, (grace, finalizers) = manifest["metadata"], held
        contains = kind.storage in CONTENT
        if "deletionTimestamp" not in own and kind.generation and not contains:
            own["generation"] = own.get("generation", 0) + 1
        if "deletionTimestamp" not in own or grace < own.get("deletionGracePeriodSeconds", 0):
            own["deletionTimestamp"] = metadata.timestamp(self._now() + grace)
            if not contains:
                own["deletionGracePeriodSeconds"] = grace
        if finalizers:
            own["finalizers"] = finalizers
        if kind.resource == NAMESPACES:
            manifest["status"] = {**manifest.get("status", {}), "phase": "Terminating"}
        raw = encode(manifest)
        unchanged = raw == current.raw
        return raw if unchanged or options.dry_run else self._store.put(kind.storage, manifest).raw


def _check_preconditions(resource: Resource, current: Stored, options: DeleteOptions) -> None:
    texts = (
        ("UID", options.uid, current.uid, "deleted and then recreated"),
        ("ResourceVersion", options.version, str(current.version), "modified"),
    )
    for what, wanted, found, might in texts:
        if wanted and wanted != found:
            why = f"the {what} in the precondition ({wanted}) does not match the {what} in record ({found})."
            raise status_errors.conflict(
                resource, current.name, f"{why} The object might have been {might}", by_kind=True
            )


def is_held(manifest: Manifest) -> bool:
    """Whether an object contains others that have to go first: a namespace says so in its spec."""
    return manifest.get("kind") == NAMESPACES.kind and bool((manifest.get("spec") or {}).get("finalizers"))


def _finalizers(kind: Kind, manifest: Manifest, propagation: str) -> list[str]:
    finalizers = list(manifest["metadata"].get("finalizers") or ())
    wanted = {"Orphan": ORPHAN, "Foreground": FOREGROUND}.get(propagation)
    # A CRD takes what it contains with it: the collector removes this finalizer when it is empty.
    content = (
        None
        if kind.resource == NAMESPACES or "deletionTimestamp" in manifest["metadata"]
        else CONTENT.get(kind.storage)
    )
    added = [name for name in (wanted, content) if name and name not in finalizers]
    return finalizers + added


def grace_period(kind: Kind, manifest: Manifest, asked: int | None) -> int:
    """How many seconds a deletion leaves to the node: none unless a node has the pod and it has not finished."""
    spec, status = manifest.get("spec", {}), manifest.get("status", {})
    if not kind.graceful or not spec.get("nodeName") or status.get("phase") in {"Succeeded", "Failed"}:
        return 0
    seconds = int(spec.get("terminationGracePeriodSeconds", 30)) if asked is None else asked
    return 1 if seconds < 0 else seconds
