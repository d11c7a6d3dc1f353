"""From a request to its answer: one function for each verb.

One rule: a handler never waits. It reads and writes memory in one go, so no two requests ever interleave; whoever
sends the answer first waits until the disk has it.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import orjson

from embedded.apiserver import status_errors
from embedded.apiserver.kinds import bindings, metadata, scale
from embedded.apiserver.kinds.catalog import Catalog
from embedded.apiserver.schema import json_types, patches, server_side_apply, strategic_merge
from embedded.apiserver.status_errors import bad_request
from embedded.apiserver.storage import objects
from embedded.apiserver.storage.objects import Stored
from embedded.apiserver.storage.store import Store
from embedded.apiserver.verbs import admission, writes
from embedded.apiserver.verbs.deletions import Deleter
from embedded.apiserver.verbs.lists import Lister, list_of
from embedded.apiserver.verbs.writes import Writer
from embedded.apiserver.wire import decoding, integers, options, request
from embedded.apiserver.wire.options import WriteOptions
from embedded.apiserver.wire.request import Target
from kube.api import Manifest

_UNTYPED = (patches.JSON, patches.MERGE)


@dataclass(frozen=True, slots=True)
class Question:
    """A request with its body."""

    method: str
    target: Target
    query: Mapping[str, str]
    content_type: str = ""
    body: bytes = b""
    agent: str = ""
    """The program that asks, by its own word."""

    def wish(self, verb: Literal["Create", "Update", "Patch"] = "Create", *, apply: bool = False) -> WriteOptions:
        """The options of a write. Invalid."""
        found = options.write(self.query, verb, apply=apply)
        return found if found.manager else replace(found, manager=self.agent.partition("/")[0] or "unknown")


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back."""

    body: bytes
    code: int = 200
    warnings: tuple[str, ...] = field(default=())


class Handlers:
    """Answers everything but watches and logs."""

    def __init__(self, store: Store, catalog: Catalog, now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._catalog = catalog
        self.writer = Writer(store, now)
        self.deleter = Deleter(store, now)
        self._lister = Lister(store)
        self._now = now

    def answer(self, question: Question) -> Answer:
        """Do what is asked. Any Refusal."""
        where = question.target
        method = "GET" if question.method == "HEAD" else question.method
        match method, bool(where.name), where.subresource:
            case "GET", True, "" | "status":
                integers.version(question.query.get("resourceVersion") or "0")
                return Answer(self.find(where).raw)
            case "GET", False, "":
                return Answer(self._lister.list(where.kind, where.namespace, question.query))
            case "POST", False, "" if where.namespace or not where.kind.resource.namespaced:
                return self._create(question)
            case "POST", _, "binding" | "eviction" as part:
                return self._bind(question) if part == "binding" else self._evict(question)
            case (("PUT" | "PATCH"), True, "" | "status"):
                return self._replace(question) if method == "PUT" else self._patch(question)
            case (("GET" | "PUT" | "PATCH"), True, "scale"):
                return self._scale(question)
            case "DELETE", True, "":
                return self._delete(question)
            case "DELETE", False, "":
                return self._delete_all(question)
            case _:
                raise status_errors.method_not_allowed()

    def _has(self, where: Target) -> bool:
        return self._store.get(where.kind.storage, where.namespace, where.name) is not None

    def find(self, where: Target) -> Stored:
        """The object that a path names. NotFound."""
        found = self._store.get(where.kind.storage, where.namespace, where.name)
        if found is None:
            raise status_errors.not_found(where.kind.resource, where.name)
        return found

    def _create(self, question: Question) -> Answer:
        where = question.target
        decoding.check_media_type(question.content_type)
        wish = question.wish()
        manifest, warnings = _taken(question, wish)
        with _warned(warnings):
            return Answer(self.writer.create(where.kind, where.namespace, manifest, wish), 201, warnings)

    def _replace(self, question: Question) -> Answer:
        where = question.target
        wish = question.wish("Update")
        try:
            manifest, warnings = _taken(question, wish)
        except status_errors.Refusal as refusal:
            if refusal.code == 422:
                self.find(where)  # an object of another kind: looked up before it is refused
            raise
        with _warned(warnings):
            writes.check_name(where.kind, manifest["metadata"], where.namespace, where.name)
            if where.kind.upsert and not where.subresource and not self._has(where):
                writes.check_upsert(where.kind, (where.namespace, where.name), manifest["metadata"], wish)
                raw = self.writer.create(where.kind, where.namespace, manifest, wish, upsert=True)
                return Answer(raw, 201, warnings)
            current = self.find(where)
            raw = self.writer.update(where.kind, current, manifest, wish, section=where.subresource)
        return Answer(raw, 200, warnings)

    def _patch(self, question: Question) -> Answer:
        where = question.target
        if question.content_type == server_side_apply.MEDIA_TYPE:
            return self._apply(question)
        _check_patch_type(question)
        wish = question.wish("Patch")
        current = self.find(where)
        old = current.manifest()
        candidate = _patched(question, current.manifest())
        warnings = admission.take(where.kind, candidate, wish, writes.changes(candidate, old))
        with _warned(warnings):
            writes.check_name(where.kind, candidate["metadata"], where.namespace, where.name)
            raw = self.writer.update(where.kind, current, candidate, wish, section=where.subresource)
        return Answer(raw, 200, warnings)

    def _apply(self, question: Question) -> Answer:
        where, wish = question.target, question.wish("Patch", apply=True)
        kind, config = where.kind, decoding.applied(question.target.kind, question.body)
        own = config["metadata"]
        live = None if not where.subresource and not self._has(where) else self.find(where)
        if live is not None:
            own.setdefault("name", where.name)
        writes.check_name(kind, dict(own), where.namespace, where.name)
        who = server_side_apply.Manager(
            server_side_apply.APPLY, wish.manager, kind.resource.api_version, where.subresource
        )
        asked = server_side_apply.Application(
            config, kind.schema, who, metadata.timestamp(self._now()), options.flag(question.query, "force")
        )
        candidate = server_side_apply.applied(live.manifest() if live else None, asked)
        sections = None if live is None else writes.changes(candidate, live.manifest())
        warnings = admission.take(kind, candidate, wish, sections)
        with _warned(warnings):
            if live is None:
                return Answer(self.writer.create(kind, where.namespace, candidate, wish), 201, warnings)
            return Answer(self.writer.update(kind, live, candidate, wish, section=where.subresource), 200, warnings)

    def _scale(self, question: Question) -> Answer:
        where = question.target
        verb: Literal["Update", "Patch"] = "Update" if question.method == "PUT" else "Patch"
        if question.method == "PATCH":
            _check_patch_type(question)
        wish = question.wish(verb) if question.method != "GET" else WriteOptions()
        asked = _manifest(question) if question.method == "PUT" else None
        if asked is not None:
            scale.check(asked, where.namespace, where.name)
        current = self.find(where)
        shown = scale.show(where.kind, current)
        if question.method == "GET":
            return Answer(orjson.dumps(shown))
        asked = _patched(question, shown) if asked is None else asked
        candidate = scale.applied(where.kind, current, asked, patch=question.method == "PATCH")
        raw = self.writer.update(where.kind, current, candidate, wish)
        after = current if raw == current.raw else objects.read(raw, orjson.loads(raw), 0, ())
        return Answer(orjson.dumps(scale.show(where.kind, after)))

    def _bind(self, question: Question) -> Answer:
        where = question.target
        decoding.check_media_type(question.content_type)
        wish = question.wish()
        body = _manifest(question)
        name = bindings.named(body, "Binding", "v1", where.name)
        bindings.check(body)
        current = self.find(Target(where.kind, where.namespace, name))
        bound = bindings.bound(where.kind, current, body, self._now(), dry_run=wish.dry_run)
        if not wish.dry_run:
            self._store.put(where.kind.storage, bound)
        return Answer(orjson.dumps(status_errors.CREATED), 201)

    def _evict(self, question: Question) -> Answer:
        where = question.target
        decoding.check_media_type(question.content_type)
        dry = question.wish().dry_run
        body = _manifest(question)
        bindings.named(body, "Eviction", "policy/v1", where.name)
        wish = options.deletion({}, body.get("deleteOptions") or {})
        current = self.find(where)
        if not (dry or wish.dry_run):
            current = self._store.put(where.kind.storage, bindings.evicted(current, self._now()))
        self.deleter.delete(where.kind, current, replace(wish, dry_run=dry or wish.dry_run))
        return Answer(orjson.dumps(status_errors.CREATED), 201)

    def _delete(self, question: Question) -> Answer:
        where = question.target
        wish = options.deletion(question.query, _body(question))
        current = self.find(where)
        deleted = self.deleter.delete(where.kind, current, wish)
        if not deleted.gone:
            return Answer(deleted.raw, 202 if wish.orphan is False else 200)
        if where.kind.shown_when_gone:
            return Answer(deleted.raw)
        return Answer(orjson.dumps(status_errors.success(where.kind.resource, current.name, current.uid)))

    def _delete_all(self, question: Question) -> Answer:
        where = question.target
        if where.kind.resource.namespaced and not where.namespace:
            raise status_errors.method_not_allowed()
        options.listing(question.query)
        chosen = request.selector(question.query, where.kind)
        wish = options.deletion(question.query, _body(question))
        found = [item for item in self._store.items(where.kind.storage, where.namespace) if chosen.matches(item)]
        for item in found:
            self.deleter.delete(where.kind, item, wish)
        return Answer(list_of(where.kind, found, {"resourceVersion": str(self._store.revision)}))


@contextlib.contextmanager
def _warned(warnings: tuple[str, ...]) -> Iterator[None]:
    """What is refused from here on is refused with these warnings."""
    try:
        yield
    except status_errors.Refusal as refusal:
        refusal.warnings = warnings
        raise


def _body(question: Question) -> Any:
    if not question.body:
        return None
    decoding.check_media_type(question.content_type)
    return decoding.parse(question.body, question.content_type)


def _manifest(question: Question) -> Manifest:
    return decoding.manifest(question.target.kind, question.body, question.content_type)


def _taken(question: Question, wish: WriteOptions) -> tuple[Manifest, tuple[str, ...]]:
    manifest = _manifest(question)
    twice = decoding.duplicates(question.body, manifest) if wish.validation != "Ignore" else ()
    return manifest, admission.take(question.target.kind, manifest, wish, twice=twice)


def _check_patch_type(question: Question) -> None:
    known = _UNTYPED if question.target.kind.custom else (*_UNTYPED, strategic_merge.MEDIA_TYPE)
    if question.content_type not in known:
        raise (
            status_errors.unsupported_media_type(known)
            if question.target.kind.custom
            else status_errors.unknown_media_type()
        )


def _patched(question: Question, current: Manifest) -> Manifest:
    patch = decoding.patch(question.body)
    if question.content_type == patches.JSON:
        return patches.apply_json(current, patch)
    if not isinstance(patch, dict):
        word = json_types.go_type_name(patch)
        raise bad_request(f"error decoding patch: json: cannot unmarshal {word} into Go value of type map")
    if question.content_type == strategic_merge.MEDIA_TYPE:
        target = question.target
        return strategic_merge.merge(current, patch, {} if target.subresource == "scale" else target.kind.schema.source)
    merged: Manifest = patches.merge(current, patch)
    return merged
