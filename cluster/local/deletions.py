"""Deleting objects: at once, after the finalizers, or after the node has stopped a pod.

One rule: an object goes only when nothing holds it any more: no finalizer, no grace period.
"""

from collections.abc import Callable
from dataclasses import dataclass

from cluster.api import Manifest
from cluster.local import metadata, refusals
from cluster.local.catalog import Kind, storage
from cluster.local.objects import Stored, encode
from cluster.local.preconditions import check as check_preconditions
from cluster.local.refusals import Cause
from cluster.local.store import Store
from crds.resources import CRDS, NAMESPACES

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
PROTECTED_NAMESPACES = ("default", "kube-system")
CONTENT = {
    storage(NAMESPACES): "torchq.local/content",
    storage(CRDS): "customresourcecleanup.apiextensions.k8s.io",
}
"""Kinds whose objects contain others, and the finalizer that holds them until those are gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """How a deletion is to be done."""

    uid: str = ""
    version: str = ""
    grace: int | None = None
    propagation: str = ""
    dry_run: bool = False
    orphan: bool | None = None
    """The older word for the propagation; with False, what is not gone at once is answered with 202."""


class Deleter:
    """Deletes objects of every kind."""

    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now

    def delete(self, kind: Kind, current: Stored, options: DeleteOptions) -> bytes | None:
        """Delete an object, or mark it for deletion. Its last state if it still exists, None if it is gone."""
        check_preconditions(kind.resource, current, options.uid, options.version)
        if kind.resource == NAMESPACES and current.name in PROTECTED_NAMESPACES:
            raise refusals.forbidden(NAMESPACES, current.name, "this namespace may not be deleted")
        manifest = current.manifest()
        grace = grace_period(kind, manifest, options.grace)
        held = _holders(kind, manifest, options.propagation)
        if not grace and not held:
            if not options.dry_run:
                self._store.remove(kind.storage, current)
            return None
        return self._mark(kind, current, manifest, (grace, held), options)

    def _mark(
        self, kind: Kind, current: Stored, manifest: Manifest, held: tuple[int, list[str]], options: DeleteOptions
    ) -> bytes:
        own, (grace, finalizers) = manifest["metadata"], held
        if "deletionTimestamp" not in own and kind.generation:
            own["generation"] = own.get("generation", 0) + 1
        if "deletionTimestamp" not in own or grace < own.get("deletionGracePeriodSeconds", 0):
            own["deletionTimestamp"] = metadata.timestamp(self._now() + grace)
            if kind.storage not in CONTENT:
                own["deletionGracePeriodSeconds"] = grace
        if finalizers:
            own["finalizers"] = finalizers
        if kind.resource == NAMESPACES:
            manifest["status"] = {**manifest.get("status", {}), "phase": "Terminating"}
        raw = encode(manifest)
        unchanged = raw == current.raw
        return raw if unchanged or options.dry_run else self._store.put(kind.storage, manifest).raw


def _holders(kind: Kind, manifest: Manifest, propagation: str) -> list[str]:
    finalizers = list(manifest["metadata"].get("finalizers") or ())
    wanted = {"Orphan": ORPHAN, "Foreground": FOREGROUND}.get(propagation)
    content = CONTENT.get(kind.storage)
    deleting = "deletionTimestamp" in manifest["metadata"]
    # A namespace or a CRD takes what it contains with it: the collector removes this finalizer when it is empty.
    added = [name for name in (wanted, None if deleting else content) if name and name not in finalizers]
    return finalizers + added


def grace_period(kind: Kind, manifest: Manifest, asked: int | None) -> int:
    """How many seconds a deletion leaves to the node: none unless a node has the pod and it has not finished."""
    if asked is not None and asked < 0:
        cause = Cause("gracePeriodSeconds", f"Invalid value: {asked}: must be non-negative")
        raise refusals.invalid(kind.resource, manifest["metadata"]["name"], [cause])
    spec, status = manifest.get("spec", {}), manifest.get("status", {})
    if not kind.graceful or not spec.get("nodeName") or status.get("phase") in {"Succeeded", "Failed"}:
        return 0
    return int(spec.get("terminationGracePeriodSeconds", 30)) if asked is None else asked
