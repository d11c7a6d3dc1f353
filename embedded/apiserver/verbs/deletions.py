"""Deletes objects: at once, after the finalizers, or after the node has stopped a pod.

One rule: an object is removed only when nothing holds it any longer: no finalizer and no grace period.
"""

from collections.abc import Callable
from dataclasses import dataclass

from crds import timestamps
from crds.api_resources import CRDS, NAMESPACES, Resource
from embedded.apiserver import status_errors
from embedded.apiserver.kinds import object_meta
from embedded.apiserver.kinds.catalog import Kind, storage
from embedded.apiserver.storage.object_store import Store
from embedded.apiserver.storage.objects import StoredObject, encode
from embedded.apiserver.wire.options import DeleteOptions
from kube.api import Manifest

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
PROTECTED_NAMESPACES = ("default", "kube-system")
CONTENT = {
    storage(NAMESPACES): "kubernetes",
    storage(CRDS): "customresourcecleanup.apiextensions.k8s.io",
}
"""The kinds whose objects contain others, and the finalizer that holds them until those are removed. A namespace has it
in its spec."""


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """The result of a deletion."""

    raw: bytes
    """The object's last state."""
    is_gone: bool
    """Whether the object is removed; otherwise it waits for finalizers or for its node."""


@dataclass(frozen=True, slots=True)
class RemovalTime:
    """Until when an object that is being deleted may stay."""

    grace: int
    """The seconds that its node has left."""
    at: float
    """The deletionTimestamp, in seconds since the epoch."""


class Deleter:
    """Deletes objects of every kind."""

    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now

    def delete(self, kind: Kind, current: StoredObject, options: DeleteOptions) -> DeleteResult:
        """Delete an object, or mark it for deletion."""
        _check_preconditions(kind.resource, current, options)
        if kind.resource == NAMESPACES and current.name in PROTECTED_NAMESPACES:
            raise status_errors.forbidden(NAMESPACES, current.name, "this namespace may not be deleted")
        manifest = current.manifest()
        removal = next_removal(kind, manifest, options.grace, self._now())
        if removal is None:
            return DeleteResult(current.raw, is_gone=False)
        finalizers = _finalizers_after(kind, manifest, options.propagation)
        if not (removal.grace or finalizers or has_contents(manifest)):
            if kind.graceful and _mark(kind, manifest, removal) and not options.dry_run:
                current = self._store.put(kind.storage, manifest)  # watches get this change before the deletion
            gone = encode(manifest) if options.dry_run else self._store.remove(kind.storage, current, manifest).raw
            return DeleteResult(gone, is_gone=True)
        _mark(kind, manifest, removal)
        if finalizers:
            manifest["metadata"]["finalizers"] = finalizers
        if kind.resource == NAMESPACES:
            manifest["status"] = {**manifest.get("status", {}), "phase": "Terminating"}
        raw = encode(manifest)
        if raw != current.raw and not options.dry_run:
            raw = self._store.put(kind.storage, manifest).raw
        return DeleteResult(raw, is_gone=False)


def _mark(kind: Kind, manifest: Manifest, removal: RemovalTime) -> bool:
    """Write into an object when it is removed, unless it is to go at once already; return whether that is a change."""
    meta, contains = manifest["metadata"], kind.storage in CONTENT
    if "deletionTimestamp" in meta and not meta.get("deletionGracePeriodSeconds"):
        return False
    if "deletionTimestamp" not in meta and kind.generation and not contains:
        meta["generation"] = meta.get("generation", 0) + 1
    meta["deletionTimestamp"] = object_meta.timestamp(removal.at)
    if not contains:
        meta["deletionGracePeriodSeconds"] = removal.grace
    return True


def _check_preconditions(resource: Resource, current: StoredObject, options: DeleteOptions) -> None:
    texts = (
        ("UID", options.uid, current.uid, "deleted and then recreated"),
        ("ResourceVersion", options.version, str(current.version), "modified"),
    )
    for what, expected, actual, might in texts:
        if expected and expected != actual:
            why = f"the {what} in the precondition ({expected}) does not match the {what} in record ({actual})."
            raise status_errors.conflict(
                resource, current.name, f"{why} The object might have been {might}", by_kind=True
            )


def has_contents(manifest: Manifest) -> bool:
    """Return whether an object contains others that are removed first: a namespace with finalizers in its spec."""
    return manifest.get("kind") == NAMESPACES.kind and bool((manifest.get("spec") or {}).get("finalizers"))


def _finalizers_after(kind: Kind, manifest: Manifest, propagation: str) -> list[str]:
    finalizers = list(manifest["metadata"].get("finalizers") or ())
    requested = {"Orphan": ORPHAN, "Foreground": FOREGROUND}.get(propagation)
    # A CRD is removed after its objects: the garbage collector removes this finalizer when none is left.
    is_new = kind.resource != NAMESPACES and "deletionTimestamp" not in manifest["metadata"]
    content = CONTENT.get(kind.storage) if is_new else None
    return finalizers + [name for name in (requested, content) if name and name not in finalizers]


def next_removal(kind: Kind, manifest: Manifest, requested: int | None, now: float) -> RemovalTime | None:
    """Return until when an object may stay after a request; None if the request changes nothing.

    A later request can only shorten the grace that the first request granted, as in k8s.io/apiserver
    (pkg/registry/rest/delete.go).
    """
    meta, seconds = manifest["metadata"], 1 if requested is not None and requested < 0 else requested
    if "deletionTimestamp" not in meta:
        grace = _first_grace(kind, manifest, seconds)
        return RemovalTime(grace, now + grace)
    granted = meta.get("deletionGracePeriodSeconds") or 0
    if not granted:
        return RemovalTime(0, now)
    if seconds is None or seconds >= granted:
        return None
    due = timestamps.parse_seconds(meta["deletionTimestamp"]) - granted + seconds
    return RemovalTime(seconds, due) if due >= now else RemovalTime(min(seconds, 1), now)


def _first_grace(kind: Kind, manifest: Manifest, requested: int | None) -> int:
    """Return the seconds that a deletion leaves to the node: 0 unless a node has the pod and it has not finished."""
    spec, status = manifest.get("spec", {}), manifest.get("status", {})
    if not kind.graceful or not spec.get("nodeName") or status.get("phase") in {"Succeeded", "Failed"}:
        return 0
    seconds = int(spec.get("terminationGracePeriodSeconds", 30)) if requested is None else requested
    return 1 if seconds < 0 else seconds
