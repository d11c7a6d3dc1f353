"""The embedded API server without its HTTP, disk and threads: the cluster that a simulated schedule runs on.

One rule: on both sides of the missing network, the product's own code makes and reads requests and answers. So the
contract suites of the embedded server hold here, too.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson

from crds.api_resources import GANG_QUEUES, NAMESPACES, POD_GROUPS, PODS, RESOURCE_QUOTAS, Resource
from crds.schema import definitions as ours
from embedded import volcano_crds
from embedded.apiserver.kinds import builtins, custom_resources
from embedded.apiserver.kinds.catalog import Catalog, Kind, storage
from embedded.apiserver.kinds.object_meta import timestamp
from embedded.apiserver.status_errors import StatusError
from embedded.apiserver.storage.journal import Change, EventKind
from embedded.apiserver.storage.object_store import Store
from embedded.apiserver.storage.objects import StoredObject
from embedded.apiserver.verbs.garbage_collector import GarbageCollector
from embedded.apiserver.verbs.handlers import ApiRequest, Handlers
from embedded.apiserver.verbs.writes import Writer
from embedded.apiserver.wire import request_target as local_requests
from embedded.apiserver.wire.options import WriteOptions
from embedded.apiserver.wire.request_target import Target
from kube import error_answers, errors, requests
from kube.api import Listing, Manifest, Patch, WatchEvent
from kube.requests import Request

NOTHING_ADDED: Mapping[str, str] = {}
VOLCANO = (POD_GROUPS, GANG_QUEUES)


@cache
def catalog() -> Catalog:
    """Return the kinds that are served: the built-in kinds, the kinds of torchq, and the kinds of Volcano."""
    made = Catalog(builtins.KINDS)
    own = (ours.torchjob(), ours.tenant_queue(), ours.scale_out(), ours.scale_in(), ours.model_version())
    for definition in (*own, volcano_crds.pod_group(), volcano_crds.queue()):
        definition.setdefault("metadata", {})["creationTimestamp"] = timestamp(0)
        custom_resources.complete(definition, None)
        kind = custom_resources.kind_of(definition)
        assert kind is not None
        made.register(kind)
    return made


_WRITES: dict[tuple[Any, ...], bytes] = {}
"""The results of writes in this process, so that an equal write is not computed twice."""


@cache
def _read(path: str) -> tuple[dict[str, str], Target]:
    parts = urlsplit(path)
    return dict(parse_qsl(parts.query)), local_requests.target(parts.path.removeprefix("/"), catalog())


def _bare(before: StoredObject | None, body: bytes) -> tuple[bytes, bytes]:
    """Return the stored object and the body of a change, both without the version of the object. Together these are a
    key of the cache.
    """
    if before is None:
        return b"", body
    version = b'"resourceVersion":"%d"' % before.version
    return before.raw.replace(version, b""), body.replace(version, b'"resourceVersion":""')


def _added(body: bytes, adds: Mapping[str, str]) -> bytes:
    """Return a pod with the requests that a LimitRange adds to each container without them."""
    pod = orjson.loads(body)
    for container in pod["spec"]["containers"]:
        resources = container.setdefault("resources", {})
        resources["requests"] = {**adds, **resources.get("requests", {})}
    return orjson.dumps(pod)


class _NoDisk:
    """A disk that stores nothing and loads nothing."""

    full = False

    def load(self) -> tuple[int, list[Any]]:
        return 0, []


class _Store(Store):
    """A store that commits and publishes each write at once."""

    def __init__(self, selectable: Callable[[str], tuple[str, ...]]) -> None:
        super().__init__(_NoDisk(), selectable)  # type: ignore[arg-type]

    def _record(self, resource: str, kind: EventKind, stored: StoredObject, before: StoredObject | None) -> None:
        change = Change(kind, stored, before)
        self.journal(resource).publish(change)
        for subscriber in self._subscribers:
            subscriber(resource, change)


class _Collector(GarbageCollector):
    """A garbage collector that works only in explicit steps."""

    def _wake(self) -> None:
        """Do nothing: there is no thread to wake."""

    def step(self) -> bool:
        """Collect some garbage, and return whether there was any garbage."""
        if not (self._deleted_owners or self._terminating):
            return False
        self._work()
        return True


class _Writer(Writer):
    """A writer that assigns uids in order, so that a schedule runs the same way every time."""

    made = 0

    def _prepare_metadata(self, kind: Kind, namespace: str, manifest: Manifest, options: WriteOptions) -> None:
        super()._prepare_metadata(kind, namespace, manifest, options)
        manifest["metadata"]["uid"] = self.next_uid()

    def next_uid(self) -> str:
        """Return the uid of the next object."""
        self.made += 1
        return f"uid-{self.made:04d}"


class Api:
    """The server side: it answers the requests of clients."""

    def __init__(
        self,
        now: Callable[[], float],
        missing: Iterable[Resource] = (),
        adds: Mapping[str, str] = NOTHING_ADDED,
        most_pods: int = 0,
    ) -> None:
        self.store = _Store(catalog().selectable)
        self._handlers = Handlers(self.store, catalog(), now)
        self._now = now
        self._handlers.writer = self._writer = _Writer(self.store, now)
        self._missing = set(missing)
        self._adds = dict(adds)
        self._most_pods = 0
        self._collector = _Collector(self.store, catalog(), self._handlers.deleter)
        self._collector.start()
        for name in ("default", "kube-system"):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            self.send(requests.create(NAMESPACES, body, "", dry_run=False))
        if most_pods:
            body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team"}}
            spec = {"hard": {"pods": str(most_pods)}}
            self.send(requests.create(RESOURCE_QUOTAS, body | {"spec": spec}, "default", dry_run=False))
            self._most_pods = most_pods
            self._count_pods()

    def send(self, request: Request) -> Any:
        """Answer a request, or raise the error that the client makes from the refusal."""
        answer = self._answer(request)
        if self._most_pods and request.method != "GET":
            self._count_pods()
        return answer

    def _answer(self, request: Request) -> Any:
        try:
            query, where = _read(request.path)
        except StatusError as refusal:
            raise error_answers.error(refusal.code, refusal.status(), request.action) from None
        if not self.serves(where.kind.resource):
            raise errors.NotFound(f"cannot {request.action}: the server could not find the requested resource")
        if self._adds and request.method == "POST" and where.kind.resource == PODS and not where.subresource:
            request = replace(request, body=_added(request.body or b"", self._adds))
        if self._most_pods and request.method == "POST" and where.kind.resource == PODS and not where.subresource:
            self._admit_pod(where, request)
        if request.method == "GET" and where.name and (found := self._find(where)):
            return found.manifest()
        if where.subresource in ("", "status") and request.method in ("POST", "PATCH") and "dryRun" not in query:
            return self._write(request, query, where)
        return self._ask(request, query, where)

    def _pods(self) -> int:
        """Return the number of pods that the ResourceQuota of the namespace counts."""
        found = (each.manifest() for each in self.objects(PODS) if each.namespace == "default")
        return sum((each.get("status") or {}).get("phase") not in ("Succeeded", "Failed") for each in found)

    def _admit_pod(self, where: Target, request: Request) -> None:
        """Refuse a pod beyond the ResourceQuota, as Kubernetes' admission plugin does."""
        used, most = self._pods(), self._most_pods
        if where.namespace == "default" and used + 1 > most:
            name = orjson.loads(request.body or b"")["metadata"]["name"]
            said = f"exceeded quota: team, requested: pods=1, used: pods={used}, limited: pods={most}"
            message = f'pods "{name}" is forbidden: {said}'
            raise error_answers.error(403, {"message": message, "reason": "Forbidden"}, request.action)

    def _count_pods(self) -> None:
        """Update the status of the ResourceQuota, as its controller does."""
        found = {"hard": {"pods": str(self._most_pods)}, "used": {"pods": str(self._pods())}}
        there = self.store.get(storage(RESOURCE_QUOTAS), "default", "team")
        if there is not None and there.manifest().get("status") != found:
            options = {"subresource": "status", "resource_version": ""}
            change = requests.patch(RESOURCE_QUOTAS, "team", {"status": found}, "default", dry_run=False, **options)
            self._answer(change)

    def _write(self, request: Request, query: dict[str, str], where: Target) -> Any:
        """Answer a write. If an equal write to an equal object was validated before, the earlier result is used
        again.
        """
        before, revision = self._find(where), self.store.revision
        key = (request.method, request.path, *_bare(before, request.body or b""), timestamp(self._now()))
        known = _WRITES.get(key)
        if known is not None and (request.method == "PATCH" or not self._taken(where, known)):
            manifest = orjson.loads(known)
            if request.method == "POST":
                manifest["metadata"]["uid"] = self._writer.next_uid()
            return self.store.put(where.kind.storage, manifest).manifest()
        answer = self._ask(request, query, where)
        is_deleted = before is not None and self._find(where) is None  # the object had waited for its last finalizer
        if self.store.revision == revision + 1 and not is_deleted:
            _WRITES[key] = orjson.dumps(answer)
        return answer

    def _taken(self, where: Target, known: bytes) -> bool:
        name = orjson.loads(known)["metadata"]["name"]
        return self.store.get(where.kind.storage, where.namespace, name) is not None

    def _find(self, where: Target) -> StoredObject | None:
        return self.store.get(where.kind.storage, where.namespace, where.name) if where.name else None

    def _ask(self, request: Request, query: dict[str, str], where: Target) -> Any:
        question = ApiRequest(request.method, where, query, request.content_type, request.body or b"")
        try:
            return orjson.loads(self._handlers.answer(question).body)
        except StatusError as refusal:
            raise error_answers.error(refusal.code, refusal.status(), request.action) from None

    def collect(self) -> bool:
        """Let the garbage collector take one step, and return whether there was garbage."""
        found = self._collector.step()
        if self._most_pods:
            self._count_pods()
        return found

    def serves(self, resource: Resource) -> bool:
        """Return whether a kind is installed."""
        known = catalog().find(resource.group, resource.version, resource.plural)
        return known is not None and resource not in self._missing

    def install(self, *resources: Resource) -> None:
        """Install these kinds."""
        self._missing.difference_update(resources)

    @property
    def revision(self) -> int:
        """The newest resourceVersion of the store."""
        return self.store.revision

    def objects(self, resource: Resource) -> list[StoredObject]:
        """Return all objects of a resource, for the observer."""
        return self.store.items(storage(resource))

    def changes(self, resource: Resource, since: int) -> list[Change]:
        """Return the changes of a resource after a version."""
        return self.store.journal(storage(resource)).since(since, self.store.revision)


class ApiClient:
    """`kube.api.Cluster` on the simulated server. `tests.faults.caches` replaces its watches."""

    def __init__(self, api: Api) -> None:
        self._api = api

    @property
    def now(self) -> float:
        """The time in seconds since 1970."""
        return self._api._now()

    def install(self, *resources: Resource) -> None:
        """Install these kinds."""
        self._api.install(*resources)

    def serves(self, resource: Resource) -> bool:
        """See Cluster."""
        return self._api.serves(resource)

    def get(self, resource: Resource, name: str, namespace: str = "") -> Manifest:
        """See Cluster."""
        return self._api.send(requests.get(resource, name, namespace))

    def list(
        self, resource: Resource, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> Listing:
        """See Cluster."""
        asked = requests.page(
            resource, namespace, label_selector=label_selector, field_selector=field_selector, limit=0, token=""
        )
        found = self._api.send(asked)
        return Listing(found["items"], found["metadata"]["resourceVersion"])

    def pages(self, resource: Resource, namespace: str = "", *, label_selector: str = "") -> Iterator[Listing]:
        """See Cluster."""
        yield self.list(resource, namespace, label_selector=label_selector)

    def create(self, resource: Resource, body: Manifest, namespace: str = "", *, dry_run: bool = False) -> Manifest:
        """See Cluster."""
        return self._api.send(requests.create(resource, body, namespace, dry_run=dry_run))

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: Patch,
        namespace: str = "",
        *,
        subresource: str = "",
        resource_version: str = "",
        dry_run: bool = False,
    ) -> Manifest:
        """See Cluster."""
        asked = requests.patch(
            resource,
            name,
            patch,
            namespace,
            subresource=subresource,
            resource_version=resource_version,
            dry_run=dry_run,
        )
        return self._api.send(asked)

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
    ) -> None:
        """See Cluster."""
        self._api.send(
            requests.delete(
                resource, name, namespace, uid=uid, grace_period_seconds=grace_period_seconds, dry_run=dry_run
            )
        )

    def evict(self, name: str, namespace: str) -> None:
        """Evict a pod, as a drain of its node does."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        self._api.send(Request("POST", PODS.path(namespace, name, "eviction"), "evict a pod", orjson.dumps(body)))

    def watch(self, *_: Any, **__: Any) -> Any:
        """Raise AssertionError: a simulation does not use this call."""
        raise AssertionError("watches are stepped from outside")

    def log_end(self, *_: Any, **__: Any) -> str:
        """Return no log: simulated pods write none."""
        return ""

    def logs(self, *_: Any, **__: Any) -> Any:
        """Raise AssertionError: a simulation does not use this call."""
        raise AssertionError("nobody reads logs here")


def event(change: Change, selected: Callable[[Mapping[str, str]], bool]) -> WatchEvent | None:
    """Return the event of a change in a watch with a label selector; None if the watch does not show the change."""
    before = change.before is not None and selected(change.before.labels)
    after = change.kind != "DELETED" and selected(change.object.labels)
    if not before and not after:
        return None
    kind: Any = ("MODIFIED" if before else "ADDED") if after else "DELETED"
    return WatchEvent(kind, change.object.manifest())
