"""Creates and changes objects: from a client's body to the next version in the store.

One rule: the order of the checks is that of the Kubernetes API server: type and identity, unknown fields, defaults,
validity, names. An object is stored only after all checks have passed.
"""

import random
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from crds.api_resources import NAMESPACES, NODES
from embedded.apiserver import status_errors
from embedded.apiserver.kinds import object_meta, preconditions
from embedded.apiserver.kinds.catalog import Kind, storage
from embedded.apiserver.schema import cel_evaluation, schema_validation, server_side_apply
from embedded.apiserver.status_errors import Cause, StatusError
from embedded.apiserver.storage.object_store import Store
from embedded.apiserver.storage.objects import StoredObject, encode
from embedded.apiserver.verbs import deletions
from embedded.apiserver.wire import go_integers
from embedded.apiserver.wire.options import WriteOptions
from kube.api import Manifest

_SHAPE_REASONS = frozenset({"FieldValueRequired", "FieldValueTypeInvalid"})
"""The reasons of causes after which the checks beyond the schema cannot rely on the object's shape."""

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


class Writer:
    """Creates and updates objects of every kind."""

    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now

    def create(
        self, kind: Kind, namespace: str, manifest: Manifest, options: WriteOptions, *, upsert: bool = False
    ) -> bytes:
        """Create an object from an admitted manifest (`admission`). Raise any StatusError."""
        self._prepare_metadata(kind, namespace, manifest, options)
        if kind.has_status and not kind.keeps_initial_status:
            manifest.pop("status", None)
        kind.admit(manifest, self._get_manifest)
        _validate(kind, manifest, None, set(manifest))
        meta = manifest["metadata"]
        if options.dry_run:
            causes = list(kind.vet(manifest, [node.manifest() for node in self._store.items(storage(NODES))]))
            if causes:
                raise status_errors.invalid(kind.resource, meta["name"], causes)
        if go_integers.parse_uint(meta.get("resourceVersion", "")) and not upsert:
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        if not upsert:
            meta.pop("resourceVersion", None)
        existing = self._store.get(kind.storage, meta.get("namespace", ""), meta["name"])
        if existing:
            made_up = "generateName" in meta
            raise status_errors.already_exists(kind.resource, meta["name"], made_up=made_up, leaving=existing.deleting)
        return encode(manifest) if options.dry_run else self._store.put(kind.storage, manifest).raw

    def update(
        self, kind: Kind, current: StoredObject, candidate: Manifest, options: WriteOptions, *, section: str = ""
    ) -> bytes:
        """Replace an object, or one section of the object (`status`), by an admitted candidate. Raise any
        StatusError."""
        old = current.manifest()
        _check_version(kind, current, candidate, options)
        managed = candidate["metadata"].get("managedFields") if options.apply else None
        new = _next_version(kind, old, candidate, section)
        if managed:
            new["metadata"] = {**new["metadata"], "managedFields": managed}
        changed = changes(new, old)
        _validate(kind, new, old, changed, section)
        changed = changes(new, old)
        if not changed:
            return current.raw
        uncounted = {"metadata"} if kind.custom and not kind.has_status else {"metadata", "status"}
        if kind.generation and kind.counts_generation and changed - uncounted:
            new["metadata"] = {**new["metadata"], "generation": old["metadata"].get("generation", 0) + 1}
        if not options.apply and old["metadata"].get("managedFields"):
            manager = server_side_apply.Manager(
                server_side_apply.UPDATE, options.manager, kind.resource.api_version, section
            )
            fields = server_side_apply.after_update(old, new, kind.schema, manager, object_meta.timestamp(self._now()))
            new["metadata"] = {**new["metadata"], "managedFields": fields}
        if options.dry_run:
            return encode(new)
        if can_be_removed(new):
            return self._store.remove(kind.storage, current, new).raw
        return self._store.put(kind.storage, new).raw

    def _prepare_metadata(self, kind: Kind, namespace: str, manifest: Manifest, options: WriteOptions) -> None:
        meta = manifest["metadata"]
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
            meta.pop(name, None)
        if kind.generation or not meta.get("generation"):
            meta.pop("generation", None)
        if not options.apply:
            meta.pop("managedFields", None)
        check_namespace(kind, meta, namespace)
        if kind.resource.namespaced:
            meta["namespace"] = namespace
            self._check_namespace(kind, namespace, meta.get("name", ""))
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = self._generate_name(kind, namespace, meta["generateName"])
        meta["uid"] = str(uuid.uuid4())
        meta["creationTimestamp"] = object_meta.timestamp(self._now())
        if kind.generation:
            meta["generation"] = 1

    def _get_manifest(self, resource: str, namespace: str, name: str) -> Manifest | None:
        stored = self._store.get(resource, namespace, name)
        return stored.manifest() if stored else None

    def _generate_name(self, kind: Kind, namespace: str, prefix: str) -> str:
        while True:
            name = prefix[:58] + "".join(random.choices(_SUFFIX, k=5))
            if not self._store.get(kind.storage, namespace, name):
                return name

    def _check_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        existing = self._store.get(NAMESPACES.plural, "", namespace)
        if existing is None:
            raise status_errors.not_found(NAMESPACES, namespace)
        if existing.deleting:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = Cause("metadata.namespace", f"namespace {namespace} is being terminated", "NamespaceTerminating")
            raise status_errors.forbidden(kind.resource, name, why, [cause])


def can_be_removed(manifest: Manifest) -> bool:
    """Return whether an object is being deleted and nothing holds it any longer."""
    meta = manifest["metadata"]
    holder = meta.get("finalizers") or meta.get("deletionGracePeriodSeconds") or deletions.has_contents(manifest)
    return "deletionTimestamp" in meta and not holder


def check_namespace(kind: Kind, meta: dict[str, Any], namespace: str) -> None:
    """Set the request's namespace in an object's metadata.

    Raise StatusError (BadRequest) if the object has another namespace.
    """
    if not kind.resource.namespaced:
        meta.pop("namespace", None)
    else:
        object_meta.check_namespace_on_url(meta.setdefault("namespace", namespace), namespace)


def check_name(kind: Kind, meta: dict[str, Any], namespace: str, name: str) -> None:
    """Raise StatusError (BadRequest) unless the object of an update is the object that the URL names."""
    check_namespace(kind, meta, namespace)
    object_meta.check_name_on_url(meta.get("name"), name)


def check_upsert(kind: Kind, key: tuple[str, str], meta: dict[str, Any], options: WriteOptions) -> None:
    """Raise StatusError (Conflict) unless a PUT may create its object.

    A uid in the metadata means that the client knows an older object.
    """
    go_integers.resource_version(meta.get("resourceVersion") or "0")
    if meta.get("uid"):
        preconditions.raise_conflict(kind, key, ("UID", meta["uid"], ""), dry_run=options.dry_run)
    if not options.dry_run:
        meta.pop("resourceVersion", None)


def _check_version(kind: Kind, current: StoredObject, candidate: Manifest, options: WriteOptions) -> None:
    meta = candidate["metadata"]
    go_integers.resource_version(meta.get("resourceVersion") or "0")
    if meta.get("uid", current.uid) != current.uid:
        if options.patch:
            raise status_errors.invalid(
                kind.resource, current.name, [status_errors.immutable("metadata.uid", meta["uid"])]
            )
        preconditions.check(kind, current, meta["uid"], "", dry_run=options.dry_run)
    version = meta.get("resourceVersion", "").lstrip("0")  # an empty version and 0 match every version
    if not version and (kind.custom or kind.requires_version):
        cause = status_errors.invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
        raise status_errors.invalid(replace(kind.resource, kind=kind.resource.plural), current.name, [cause])
    if version and version != str(current.version):
        raise status_errors.conflict(kind.resource, current.name)


def _next_version(kind: Kind, old: Manifest, candidate: Manifest, section: str) -> Manifest:
    object_meta.carry_over(candidate, old)
    if section:
        # A status write changes the client's part of the metadata, too, but only for built-in resources.
        others = {name: value for name, value in old.items() if name != section}
        meta = old["metadata"] if kind.custom else candidate["metadata"]
        return {**others, "metadata": meta, **({section: candidate[section]} if section in candidate else {})}
    if not kind.has_status:
        return candidate
    others = {name: value for name, value in candidate.items() if name != "status"}
    return {**others, **({"status": old["status"]} if "status" in old else {})}


def changes(new: Manifest, old: Manifest) -> set[str]:
    """Return the top-level fields in which two versions of an object differ."""
    # The values are compared as bytes, since 1 equals True in Python.
    shared = {name for name in new.keys() & old.keys() if encode({name: new[name]}) != encode({name: old[name]})}
    return shared | (new.keys() ^ old.keys())


def _validate(kind: Kind, new: Manifest, old: Manifest | None, changed: set[str], section: str = "") -> None:
    """Raise StatusError (Invalid) with all errors of an object; complete the object if its shape is correct."""
    problems = [status_errors.required(name) for name in kind.schema.required if name not in new]
    for name, child in kind.schema.properties.items():
        if name in changed and name in new:
            causes = schema_validation.check(new[name], child, name, old.get(name) if old and kind.custom else None)
            problems.extend(_within(section, causes) if name == section else causes)
    if all(problem.reason not in _SHAPE_REASONS for problem in problems):
        kind.complete(new, old)
        problems.extend(_problems(kind, new, old, changed))
    if all(problem.reason not in status_errors.BLOCKING for problem in problems):
        problems.extend(cel_evaluation.check_object(new, old, kind.schema, changed))
    elif kind.schema.has_rules:
        problems.append(status_errors.UNCHECKED_RULES)
    if problems:
        raise status_errors.invalid(kind.resource, new["metadata"].get("name", ""), problems)


def _within(section: str, problems: Iterable[Cause]) -> Iterator[Cause]:
    """Yield the causes for a write of one section only: their messages have paths relative to the section."""
    for problem in problems:
        message = problem.message.replace(f": {section}.", ": ", 1).replace(f": {section} in body", ":  in body", 1)
        yield replace(problem, message=message)


def _repeat_problems(kind: Kind, problems: list[Cause]) -> Iterator[Cause]:
    """Yield the causes that a Kubernetes API server repeats, since it checks metadata of updates several times."""
    finalizer_problems = [problem for problem in problems if problem.field.startswith("metadata.finalizers")]
    others = [problem for problem in problems if not problem.field.startswith("metadata.finalizers")]
    yield from others * (kind.metadata_checks - 1)
    yield from finalizer_problems * max(0, kind.metadata_checks - 3)


def _problems(kind: Kind, new: Manifest, old: Manifest | None, changed: set[str]) -> Iterator[Cause]:
    if "metadata" in changed:
        problems = list(object_meta.check(new["metadata"], simple_names=kind.simple_names))
        if not kind.custom:
            problems.extend(object_meta.check_finalizers(new["metadata"]))
        yield from problems
        if old:
            yield from _repeat_problems(kind, problems)
            yield from object_meta.check_update(new["metadata"], old["metadata"])
    yield from kind.check(new, old)
