"""Creating and changing objects: from a client's body to the next version in the store.

One rule: the order of the checks is the API server's: type and identity, unknown fields, defaults, validity, names.
Nothing is stored before all of them have passed.
"""

import random
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from crds.api_resources import NAMESPACES, NODES
from embedded.apiserver import status_errors
from embedded.apiserver.kinds import metadata, preconditions
from embedded.apiserver.kinds.catalog import Kind, storage
from embedded.apiserver.schema import cel_rules, server_side_apply, validation
from embedded.apiserver.status_errors import Cause, Refusal
from embedded.apiserver.storage.objects import Stored, encode
from embedded.apiserver.storage.store import Store
from embedded.apiserver.verbs import deletions
from embedded.apiserver.wire import integers
from embedded.apiserver.wire.options import WriteOptions
from kube.api import Manifest

_MISSHAPEN = frozenset({"FieldValueRequired", "FieldValueTypeInvalid"})
"""Reasons of causes after which the checks beyond the schema could not trust what they read."""

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


class Writer:
    """Creates and updates objects of every kind."""

    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now

    def create(
        self, kind: Kind, namespace: str, manifest: Manifest, options: WriteOptions, *, upsert: bool = False
    ) -> bytes:
        """Make an object of a settled manifest (`intake`). Any Refusal."""
        self._christen(kind, namespace, manifest, options)
        if kind.has_status and not kind.status_at_birth:
            manifest.pop("status", None)
        kind.admit(manifest, self._look)
        _judge(kind, manifest, None, set(manifest))
        own = manifest["metadata"]
        if options.dry_run:
            self._vet(kind, manifest)
        if integers.unsigned(own.get("resourceVersion", "")) and not upsert:
            raise Refusal(500, "", "resourceVersion should not be set on objects to be created")
        if not upsert:
            own.pop("resourceVersion", None)
        found = self._store.get(kind.storage, own.get("namespace", ""), own["name"])
        if found:
            made_up = "generateName" in own
            raise status_errors.already_exists(kind.resource, own["name"], made_up=made_up, leaving=found.deleting)
        return encode(manifest) if options.dry_run else self._store.put(kind.storage, manifest).raw

    def _vet(self, kind: Kind, manifest: Manifest) -> None:
        causes = list(kind.vet(manifest, [node.manifest() for node in self._store.items(storage(NODES))]))
        if causes:
            raise status_errors.invalid(kind.resource, manifest["metadata"]["name"], causes)

    def update(
        self, kind: Kind, current: Stored, candidate: Manifest, options: WriteOptions, *, section: str = ""
    ) -> bytes:
        """Replace an object, or one section of it (`status`), by a settled candidate. Any Refusal."""
        old = current.manifest()
        _check_version(kind, current, candidate, options)
        managed = candidate["metadata"].get("managedFields") if options.applied else None
        new = _next_version(kind, old, candidate, section)
        if managed:
            new["metadata"] = {**new["metadata"], "managedFields": managed}
        changed = changes(new, old)
        _judge(kind, new, old, changed, section)
        changed = changes(new, old)
        if not changed:
            return current.raw
        own = {"metadata"} if kind.custom and not kind.has_status else {"metadata", "status"}
        if kind.generation and kind.counted and changed - own:
            new["metadata"] = {**new["metadata"], "generation": old["metadata"].get("generation", 0) + 1}
        if not options.applied and old["metadata"].get("managedFields"):
            who = server_side_apply.Manager(
                server_side_apply.UPDATE, options.manager, kind.resource.api_version, section
            )
            fields = server_side_apply.after_update(old, new, kind.schema, who, metadata.timestamp(self._now()))
            new["metadata"] = {**new["metadata"], "managedFields": fields}
        return self._keep(kind, current, new, options)

    def _keep(self, kind: Kind, current: Stored, new: Manifest, options: WriteOptions) -> bytes:
        if options.dry_run:
            return encode(new)
        if is_released(new):
            return self._store.remove(kind.storage, current, new).raw
        return self._store.put(kind.storage, new).raw

    def _christen(self, kind: Kind, namespace: str, manifest: Manifest, options: WriteOptions) -> None:
        own = manifest["metadata"]
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
            own.pop(name, None)
        if kind.generation or not own.get("generation"):
            own.pop("generation", None)
        if not options.applied:
            own.pop("managedFields", None)
        check_namespace(kind, own, namespace)
        if kind.resource.namespaced:
            own["namespace"] = namespace
            self._check_namespace(kind, namespace, own.get("name", ""))
        if not own.get("name") and own.get("generateName"):
            own["name"] = self._generated_name(kind, namespace, own["generateName"])
        own["uid"] = str(uuid.uuid4())
        own["creationTimestamp"] = metadata.timestamp(self._now())
        if kind.generation:
            own["generation"] = 1

    def _look(self, resource: str, namespace: str, name: str) -> Manifest | None:
        found = self._store.get(resource, namespace, name)
        return found.manifest() if found else None

    def _generated_name(self, kind: Kind, namespace: str, prefix: str) -> str:
        while True:
            name = prefix[:58] + "".join(random.choices(_SUFFIX, k=5))
            if not self._store.get(kind.storage, namespace, name):
                return name

    def _check_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        found = self._store.get(NAMESPACES.plural, "", namespace)
        if found is None:
            raise status_errors.not_found(NAMESPACES, namespace)
        if found.deleting:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = Cause("metadata.namespace", f"namespace {namespace} is being terminated", "NamespaceTerminating")
            raise status_errors.forbidden(kind.resource, name, why, [cause])


def is_released(manifest: Manifest) -> bool:
    """Whether an object that is being deleted has nothing left that holds it."""
    own = manifest["metadata"]
    held = own.get("finalizers") or own.get("deletionGracePeriodSeconds") or deletions.is_held(manifest)
    return "deletionTimestamp" in own and not held


def check_namespace(kind: Kind, own: dict[str, Any], namespace: str) -> None:
    """Put the request's namespace into an object's metadata. BadRequest if another one is there."""
    if not kind.resource.namespaced:
        own.pop("namespace", None)
    elif own.setdefault("namespace", namespace) != namespace:
        message = "the namespace of the provided object does not match the namespace sent on the request"
        raise status_errors.bad_request(message)


def check_name(kind: Kind, own: dict[str, Any], namespace: str, name: str) -> None:
    """Whether an update's object is the one on the URL. BadRequest if not."""
    check_namespace(kind, own, namespace)
    if not own.get("name"):
        why = f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
        raise status_errors.bad_request(why)
    if own["name"] != name:
        why = f"the name of the object ({own['name']}) does not match the name on the URL ({name})"
        raise status_errors.bad_request(why)


def check_upsert(kind: Kind, place: tuple[str, str], own: dict[str, Any], options: WriteOptions) -> None:
    """Whether a PUT may make its object: Conflict if it speaks of one that was there."""
    _check_number(own.get("resourceVersion", ""))
    if own.get("uid"):
        preconditions.failed(kind, place, ("UID", own["uid"], ""), dry_run=options.dry_run)
    if not options.dry_run:
        own.pop("resourceVersion", None)


def _check_number(version: str) -> None:
    if version:
        integers.version(version)


def _check_version(kind: Kind, current: Stored, candidate: Manifest, options: WriteOptions) -> None:
    own = candidate["metadata"]
    _check_number(own.get("resourceVersion", ""))
    if own.get("uid", current.uid) != current.uid:
        if options.patch:
            raise status_errors.invalid(
                kind.resource, current.name, [status_errors.immutable("metadata.uid", own["uid"])]
            )
        preconditions.check(kind, current, own["uid"], "", dry_run=options.dry_run)
    version = own.get("resourceVersion", "").lstrip("0")  # none and 0 demand nothing
    if not version and (kind.custom or kind.versioned):
        cause = status_errors.wrong("metadata.resourceVersion", 0, "must be specified for an update")
        raise status_errors.invalid(replace(kind.resource, kind=kind.resource.plural), current.name, [cause])
    if version and version != str(current.version):
        raise status_errors.conflict(kind.resource, current.name)


def _next_version(kind: Kind, old: Manifest, candidate: Manifest, section: str) -> Manifest:
    metadata.carry_over(candidate, old)
    if section:
        # Of the metadata, a status write changes what is the client's, but of built-in resources only.
        others = {name: value for name, value in old.items() if name != section}
        own = old["metadata"] if kind.custom else candidate["metadata"]
        return {**others, "metadata": own, **({section: candidate[section]} if section in candidate else {})}
    if not kind.has_status:
        return candidate
    others = {name: value for name, value in candidate.items() if name != "status"}
    return {**others, **({"status": old["status"]} if "status" in old else {})}


def changes(new: Manifest, old: Manifest) -> set[str]:
    """The top-level fields in which two versions of an object differ."""
    # Compared as bytes: to Python, 1 equals true.
    shared = {name for name in new.keys() & old.keys() if encode({name: new[name]}) != encode({name: old[name]})}
    return shared | (new.keys() ^ old.keys())


def _judge(kind: Kind, new: Manifest, old: Manifest | None, changed: set[str], section: str = "") -> None:
    """Refuse an object that is not valid, with all that is wrong; complete it where its shape allows."""
    problems = [status_errors.required(name) for name in kind.schema.required if name not in new]
    for name, child in kind.schema.properties.items():
        if name in changed and name in new:
            found = validation.check(new[name], child, name)
            problems.extend(_within(section, found) if name == section else found)
    if all(problem.reason not in _MISSHAPEN for problem in problems):
        kind.complete(new, old)
        problems.extend(_problems(kind, new, old, changed))
    if all(problem.reason not in status_errors.BLOCKING for problem in problems):
        problems.extend(cel_rules.check_object(new, old, kind.schema, changed))
    elif kind.schema.ruled:
        problems.append(status_errors.UNCHECKED_RULES)
    if problems:
        raise status_errors.invalid(kind.resource, new["metadata"].get("name", ""), problems)


def _within(section: str, problems: Iterable[Cause]) -> Iterator[Cause]:
    """Problems as they are told of a write of one section only: with paths from there in the words."""
    for problem in problems:
        words = problem.message.replace(f": {section}.", ": ", 1).replace(f": {section} in body", ":  in body", 1)
        yield replace(problem, message=words)


def _told_again(kind: Kind, problems: list[Cause]) -> Iterator[Cause]:
    """What a Kubernetes API server says several times, since it looks several times at the metadata of an update."""
    held = [problem for problem in problems if problem.field.startswith("metadata.finalizers")]
    others = [problem for problem in problems if not problem.field.startswith("metadata.finalizers")]
    yield from others * (kind.looks - 1)
    yield from held * max(0, kind.looks - 3)


def _problems(kind: Kind, new: Manifest, old: Manifest | None, changed: set[str]) -> Iterator[Cause]:
    if "metadata" in changed:
        problems = list(metadata.check(new["metadata"], simple_names=kind.simple_names))
        if not kind.custom:
            problems.extend(metadata.check_finalizers(new["metadata"]))
        yield from problems
        if old:
            yield from _told_again(kind, problems)
            yield from metadata.check_update(new["metadata"], old["metadata"])
    yield from kind.check(new, old)
