"""The handlers of requests, one for each verb.

One rule: a handler never waits. A handler reads and writes memory without a break, so no two requests interleave. The
server waits until the disk has the change before it sends the answer.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import orjson

from embedded.apiserver import status_errors
from embedded.apiserver.kinds import bindings, object_meta, scale_subresource
from embedded.apiserver.kinds.catalog import Catalog
from embedded.apiserver.schema import json_types, patches, server_side_apply, strategic_merge
from embedded.apiserver.status_errors import bad_request
from embedded.apiserver.storage import objects
from embedded.apiserver.storage.object_store import Store
from embedded.apiserver.storage.objects import StoredObject
from embedded.apiserver.verbs import admission, writes
from embedded.apiserver.verbs.deletions import Deleter
from embedded.apiserver.verbs.lists import Lister, list_of
from embedded.apiserver.verbs.writes import Writer
from embedded.apiserver.wire import decoding, go_integers, options
from embedded.apiserver.wire import request_target as wire_request
from embedded.apiserver.wire.options import WriteOptions
from embedded.apiserver.wire.request_target import Target
from kube.api import Manifest

_UNTYPED = (patches.JSON, patches.MERGE)


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request to the API, with its body."""

    method: str
    target: Target
    query: Mapping[str, str]
    content_type: str = ""
    body: bytes = b""
    agent: str = ""
    """The User-Agent of the client."""

    def write_options(
        self, verb: Literal["Create", "Update", "Patch"] = "Create", *, apply: bool = False
    ) -> WriteOptions:
        """Return the options of a write. Without a field manager, the client's program is the manager.

        Raise StatusError (Invalid) if an option is wrong.
        """
        write_options = options.write_options(self.query, verb, apply=apply)
        if write_options.manager:
            return write_options
        return replace(write_options, manager=self.agent.partition("/")[0] or "unknown")


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """The answer to a request: body, HTTP status and warnings."""

    body: bytes
    code: int = 200
    warnings: tuple[str, ...] = field(default=())


class Handlers:
    """Answers all requests except watches and logs."""

    def __init__(self, store: Store, catalog: Catalog, now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._catalog = catalog
        self.writer = Writer(store, now)
        self.deleter = Deleter(store, now)
        self._lister = Lister(store)
        self._now = now

    def answer(self, request: ApiRequest) -> ApiResponse:
        """Carry out a request and return its answer. Raise any StatusError."""
        target = request.target
        method = "GET" if request.method == "HEAD" else request.method
        match method, bool(target.name), target.subresource:
            case "GET", True, "" | "status":
                go_integers.resource_version(request.query.get("resourceVersion") or "0")
                return ApiResponse(self.find(target).raw)
            case "GET", False, "":
                return ApiResponse(self._lister.list(target.kind, target.namespace, request.query))
            case "POST", False, "" if target.namespace or not target.kind.resource.namespaced:
                return self._create(request)
            case "POST", _, "binding" | "eviction" as part:
                return self._bind(request) if part == "binding" else self._evict(request)
            case (("PUT" | "PATCH"), True, "" | "status"):
                return self._replace(request) if method == "PUT" else self._patch(request)
            case (("GET" | "PUT" | "PATCH"), True, "scale"):
                return self._scale(request)
            case "DELETE", True, "":
                return self._delete(request)
            case "DELETE", False, "":
                return self._delete_all(request)
            case _:
                raise status_errors.method_not_allowed()

    def _has(self, target: Target) -> bool:
        return self._store.get(target.kind.storage, target.namespace, target.name) is not None

    def find(self, target: Target) -> StoredObject:
        """Return the object that a path names. Raise StatusError (NotFound) if the object does not exist."""
        stored = self._store.get(target.kind.storage, target.namespace, target.name)
        if stored is None:
            raise status_errors.not_found(target.kind.resource, target.name)
        return stored

    def _create(self, request: ApiRequest) -> ApiResponse:
        target = request.target
        decoding.check_media_type(request.content_type)
        write_options = request.write_options()
        manifest, warnings = _admitted_manifest(request, write_options)
        with _attach_warnings(warnings):
            return ApiResponse(
                self.writer.create(target.kind, target.namespace, manifest, write_options), 201, warnings
            )

    def _replace(self, request: ApiRequest) -> ApiResponse:
        target = request.target
        write_options = request.write_options("Update")
        try:
            manifest, warnings = _admitted_manifest(request, write_options)
        except status_errors.StatusError as refusal:
            if refusal.code == 422:
                self.find(target)  # an object of another kind: a missing object is reported before the wrong kind
            raise
        with _attach_warnings(warnings):
            writes.check_name(target.kind, manifest["metadata"], target.namespace, target.name)
            if target.kind.create_on_update and not target.subresource and not self._has(target):
                writes.check_upsert(target.kind, (target.namespace, target.name), manifest["metadata"], write_options)
                raw = self.writer.create(target.kind, target.namespace, manifest, write_options, upsert=True)
                return ApiResponse(raw, 201, warnings)
            current = self.find(target)
            raw = self.writer.update(target.kind, current, manifest, write_options, section=target.subresource)
        return ApiResponse(raw, 200, warnings)

    def _patch(self, request: ApiRequest) -> ApiResponse:
        target = request.target
        if request.content_type == server_side_apply.MEDIA_TYPE:
            return self._apply(request)
        _check_patch_type(request)
        write_options = request.write_options("Patch")
        current = self.find(target)
        old = current.manifest()
        candidate = _apply_patch(request, current.manifest())
        warnings = admission.admit(target.kind, candidate, write_options, writes.changes(candidate, old))
        with _attach_warnings(warnings):
            writes.check_name(target.kind, candidate["metadata"], target.namespace, target.name)
            raw = self.writer.update(target.kind, current, candidate, write_options, section=target.subresource)
        return ApiResponse(raw, 200, warnings)

    def _apply(self, request: ApiRequest) -> ApiResponse:
        target, write_options = request.target, request.write_options("Patch", apply=True)
        kind, config = target.kind, decoding.apply_configuration(request.target.kind, request.body)
        meta = config["metadata"]
        live = None if not target.subresource and not self._has(target) else self.find(target)
        if live is not None:
            meta.setdefault("name", target.name)
        writes.check_name(kind, dict(meta), target.namespace, target.name)
        manager = server_side_apply.Manager(
            server_side_apply.APPLY, write_options.manager, kind.resource.api_version, target.subresource
        )
        application = server_side_apply.ApplyRequest(
            config, kind.schema, manager, object_meta.timestamp(self._now()), options.flag(request.query, "force")
        )
        candidate = server_side_apply.apply(live.manifest() if live else None, application)
        sections = None if live is None else writes.changes(candidate, live.manifest())
        warnings = admission.admit(kind, candidate, write_options, sections)
        with _attach_warnings(warnings):
            if live is None:
                return ApiResponse(self.writer.create(kind, target.namespace, candidate, write_options), 201, warnings)
            return ApiResponse(
                self.writer.update(kind, live, candidate, write_options, section=target.subresource), 200, warnings
            )

    def _scale(self, request: ApiRequest) -> ApiResponse:
        target = request.target
        verb: Literal["Update", "Patch"] = "Update" if request.method == "PUT" else "Patch"
        if request.method == "PATCH":
            _check_patch_type(request)
        write_options = request.write_options(verb) if request.method != "GET" else WriteOptions()
        requested = _manifest(request) if request.method == "PUT" else None
        if requested is not None:
            scale_subresource.check(requested, target.namespace, target.name)
        current = self.find(target)
        present = scale_subresource.show(target.kind, current)
        if request.method == "GET":
            return ApiResponse(orjson.dumps(present))
        requested = _apply_patch(request, present) if requested is None else requested
        candidate = scale_subresource.apply(target.kind, current, requested, patch=request.method == "PATCH")
        raw = self.writer.update(target.kind, current, candidate, write_options)
        after = current if raw == current.raw else objects.read(raw, orjson.loads(raw), 0, ())
        return ApiResponse(orjson.dumps(scale_subresource.show(target.kind, after)))

    def _bind(self, request: ApiRequest) -> ApiResponse:
        target = request.target
        decoding.check_media_type(request.content_type)
        write_options = request.write_options()
        body = _manifest(request)
        name = bindings.read_pod_name(body, "Binding", "v1", target.name)
        bindings.read_node_name(body)
        current = self.find(Target(target.kind, target.namespace, name))
        bound = bindings.bind(target.kind, current, body, self._now(), dry_run=write_options.dry_run)
        if not write_options.dry_run:
            self._store.put(target.kind.storage, bound)
        return ApiResponse(orjson.dumps(status_errors.CREATED), 201)

    def _evict(self, request: ApiRequest) -> ApiResponse:
        target = request.target
        decoding.check_media_type(request.content_type)
        is_dry_run = request.write_options().dry_run
        body = _manifest(request)
        bindings.read_pod_name(body, "Eviction", "policy/v1", target.name)
        delete_options = options.delete_options({}, body.get("deleteOptions") or {})
        current = self.find(target)
        if not (is_dry_run or delete_options.dry_run):
            current = self._store.put(target.kind.storage, bindings.evict(current, self._now()))
        self.deleter.delete(target.kind, current, replace(delete_options, dry_run=is_dry_run or delete_options.dry_run))
        return ApiResponse(orjson.dumps(status_errors.CREATED), 201)

    def _delete(self, request: ApiRequest) -> ApiResponse:
        target = request.target
        delete_options = options.delete_options(request.query, _body(request))
        current = self.find(target)
        result = self.deleter.delete(target.kind, current, delete_options)
        if not result.is_gone:
            return ApiResponse(result.raw, 202 if delete_options.orphan is False else 200)
        if target.kind.returns_deleted_object:
            return ApiResponse(result.raw)
        return ApiResponse(orjson.dumps(status_errors.success(target.kind.resource, current.name, current.uid)))

    def _delete_all(self, request: ApiRequest) -> ApiResponse:
        target = request.target
        if target.kind.resource.namespaced and not target.namespace:
            raise status_errors.method_not_allowed()
        options.list_options(request.query)
        selector = wire_request.selector(request.query, target.kind)
        delete_options = options.delete_options(request.query, _body(request))
        items = [item for item in self._store.items(target.kind.storage, target.namespace) if selector.matches(item)]
        for item in items:
            self.deleter.delete(target.kind, item, delete_options)
        return ApiResponse(list_of(target.kind, items, {"resourceVersion": str(self._store.revision)}))


@contextlib.contextmanager
def _attach_warnings(warnings: tuple[str, ...]) -> Iterator[None]:
    """Add the warnings to every StatusError that the block raises."""
    try:
        yield
    except status_errors.StatusError as refusal:
        refusal.warnings = warnings
        raise


def _body(request: ApiRequest) -> Any:
    if not request.body:
        return None
    decoding.check_media_type(request.content_type)
    return decoding.parse(request.body, request.content_type)


def _manifest(request: ApiRequest) -> Manifest:
    return decoding.manifest(request.target.kind, request.body, request.content_type)


def _admitted_manifest(request: ApiRequest, write_options: WriteOptions) -> tuple[Manifest, tuple[str, ...]]:
    manifest = _manifest(request)
    repeated = decoding.duplicates(request.body, manifest) if write_options.validation != "Ignore" else ()
    return manifest, admission.admit(request.target.kind, manifest, write_options, repeated=repeated)


def _check_patch_type(request: ApiRequest) -> None:
    custom = request.target.kind.custom
    if custom and request.content_type not in _UNTYPED:
        raise status_errors.unsupported_media_type(_UNTYPED)
    if request.content_type not in (*_UNTYPED, strategic_merge.MEDIA_TYPE):
        raise status_errors.StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def _apply_patch(request: ApiRequest, current: Manifest) -> Manifest:
    patch = decoding.patch(request.body)
    if request.content_type == patches.JSON:
        return patches.apply_json(current, patch)
    if not isinstance(patch, dict):
        go_type = json_types.go_type_name(patch)
        raise bad_request(f"error decoding patch: json: cannot unmarshal {go_type} into Go value of type map")
    if request.content_type == strategic_merge.MEDIA_TYPE:
        target = request.target
        return strategic_merge.merge(current, patch, {} if target.subresource == "scale" else target.kind.schema.source)
    merged: Manifest = patches.merge(current, patch)
    return merged
