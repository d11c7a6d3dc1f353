"""From a request to its answer: one function for each verb.

One rule: a handler never waits. It reads and writes memory in one go, so no two requests ever interleave; whoever
sends the answer first waits until the disk has it.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from cluster.api import Manifest
from cluster.local import bindings, patches, refusals, requests, scales
from cluster.local.catalog import Catalog, Kind
from cluster.local.deletions import Deleter
from cluster.local.listings import Lister
from cluster.local.objects import Stored
from cluster.local.refusals import bad_request
from cluster.local.requests import Target
from cluster.local.store import Store
from cluster.local.writes import Writer, Written

JSON_TYPES = ("", "application/json")


@dataclass(frozen=True, slots=True)
class Question:
    """A request with its body."""

    method: str
    target: Target
    query: Mapping[str, str]
    content_type: str = ""
    body: bytes = b""


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
        match question.method, bool(where.name), where.subresource:
            case "GET", True, "" | "status":
                return Answer(self._find(where).raw)
            case "GET", False, "":
                return Answer(self._lister.list(where.kind, where.namespace, question.query))
            case "POST", False, "":
                return self._create(question)
            case "POST", _, "binding":
                return self._bind(question)
            case (("PUT" | "PATCH"), True, "" | "status"):
                return self._update(question)
            case (("GET" | "PUT" | "PATCH"), True, "scale"):
                return self._scale(question)
            case "DELETE", True, "":
                return self._delete(question)
            case "DELETE", False, "":
                return self._delete_all(question)
            case _:
                raise refusals.method_not_allowed()

    def _find(self, where: Target) -> Stored:
        found = self._store.get(where.kind.storage, where.namespace, where.name)
        if found is None:
            raise refusals.not_found(where.kind.resource, where.name)
        return found

    def _create(self, question: Question) -> Answer:
        where = question.target
        if where.kind.resource.namespaced and not where.namespace:
            raise refusals.method_not_allowed()
        options = requests.write_options(question.query)
        written = self.writer.create(where.kind, where.namespace, _manifest(question), options)
        return _answer(written, 201)

    def _update(self, question: Question) -> Answer:
        where = question.target
        options = requests.write_options(question.query, patch=question.method == "PATCH")
        current = self._find(where)
        candidate = _candidate(question, current.manifest())
        return _answer(self.writer.update(where.kind, current, candidate, options, section=where.subresource))

    def _scale(self, question: Question) -> Answer:
        where = question.target
        current = self._find(where)
        shown = scales.show(where.kind, current)
        if question.method == "GET":
            return Answer(orjson.dumps(shown))
        options = requests.write_options(question.query, patch=question.method == "PATCH")
        candidate = scales.applied(where.kind, current, _candidate(question, shown))
        written = self.writer.update(where.kind, current, candidate, options)
        after = self._store.get(where.kind.storage, where.namespace, where.name)
        return Answer(orjson.dumps(scales.show(where.kind, after or current)), 200, written.warnings)

    def _bind(self, question: Question) -> Answer:
        body, where = _manifest(question), question.target
        current = self._find(Target(where.kind, where.namespace, where.name or bindings.name(body)))
        bound = bindings.bound(where.kind, current, body, self._now())
        if not requests.write_options(question.query).dry_run:
            self._store.put(where.kind.storage, bound)
        return Answer(orjson.dumps({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}), 201)

    def _delete(self, question: Question) -> Answer:
        where = question.target
        options = requests.delete_options(question.query, _json(question))
        current = self._find(where)
        left = self.deleter.delete(where.kind, current, options)
        if left is not None:
            return Answer(left)
        if where.kind.graceful:
            return Answer(current.raw)
        return Answer(orjson.dumps(refusals.success(where.kind.resource, current.name, current.uid)))

    def _delete_all(self, question: Question) -> Answer:
        where = question.target
        if where.kind.resource.namespaced and not where.namespace:
            raise refusals.method_not_allowed()
        options = requests.delete_options(question.query, _json(question))
        chosen = requests.selector(question.query, where.kind)
        found = [item for item in self._store.items(where.kind.storage, where.namespace) if chosen.matches(item)]
        for item in found:
            self.deleter.delete(where.kind, item, options)
        return Answer(_list_of(where.kind, found, self._store.revision))


def _list_of(kind: Kind, items: list[Stored], revision: int) -> bytes:
    head = {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind + "List"}
    own = orjson.dumps({**head, "metadata": {"resourceVersion": str(revision)}})
    return own[:-1] + b',"items":[' + b",".join(item.raw for item in items) + b"]}"


def _answer(written: Written, code: int = 200) -> Answer:
    return Answer(written.raw, code, written.warnings)


def _json(question: Question) -> Any:
    if not question.body:
        return None
    try:
        return orjson.loads(question.body)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"the body is not JSON: {error}") from None


def _manifest(question: Question) -> Manifest:
    if question.content_type not in JSON_TYPES:
        raise refusals.unsupported_media_type(JSON_TYPES[1:])
    body = _json(question)
    if not isinstance(body, dict):
        raise bad_request("the body is not a JSON object")
    return body


def _candidate(question: Question, current: Manifest) -> Manifest:
    if question.method == "PUT":
        return _manifest(question)
    match question.content_type:
        case patches.MERGE:
            merged = patches.merge(current, _json(question))
        case patches.JSON:
            merged = patches.apply_json(current, _json(question))
        case _:
            raise refusals.unsupported_media_type((patches.JSON, patches.MERGE))
    if not isinstance(merged, dict):
        raise bad_request("the patch does not leave an object")
    return merged
