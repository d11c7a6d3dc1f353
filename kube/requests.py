"""The requests to the API server for each verb: path, query and body.

One rule: pure, and no path is built from a name that changes its meaning: an empty name in a DELETE would name the
whole collection.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from urllib.parse import quote, urlencode

import orjson

from crds.api_resources import PODS, SERVICE_ACCOUNTS, SERVICES, Resource, job_logs_path
from kube import errors
from kube.api import LogOptions, Manifest, Patch

JSON = "application/json"
HEADS = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"


Headers = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Request:
    """One request, ready to be sent any number of times."""

    method: str
    path: str
    """The path with its query."""
    action: str
    """A description of the request for messages, such as `create pods in namespace a`."""
    body: bytes | None = None
    content_type: str = JSON
    accept: str = JSON
    """The form of the answer."""
    repeatable: bool = True
    """Whether two sends have the effect of one; the answers may differ (AlreadyExists, NotFound)."""
    headers: Headers = field(default_factory=dict, repr=False)
    """More headers, which may be secret."""


def get(resource: Resource, name: str, namespace: str) -> Request:
    """Return the request that reads one object."""
    return Request("GET", _object_path(resource, name, namespace), _action("get", resource, namespace, name))


def discovery(resource: Resource) -> Request:
    """Return the request that reads the resources of one group and version."""
    return Request("GET", resource.root, f"ask for the resources of {resource.api_version}")


def page(
    resource: Resource, namespace: str, *, label_selector: str, field_selector: str, limit: int, token: str
) -> Request:
    """Return the request for one page of a list; `token` is the `continue` of the previous page, limit 0 is no
    limit."""
    query = {
        "labelSelector": label_selector,
        "fieldSelector": field_selector,
        "limit": str(limit or ""),
        "continue": token,
    }
    path, action = _collection_path(resource, namespace) + _query(query), _action("list", resource, namespace)
    return Request("GET", path, action, accept=HEADS if resource.heads else JSON)


def watch(
    resource: Resource, namespace: str, *, resource_version: str, label_selector: str, timeout_seconds: int
) -> Request:
    """Return the request that watches a collection."""
    query = {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "resourceVersion": resource_version,
        "timeoutSeconds": str(timeout_seconds),
        "labelSelector": label_selector,
    }
    return Request("GET", _collection_path(resource, namespace) + _query(query), _action("watch", resource, namespace))


def create(resource: Resource, body: Manifest, namespace: str, *, dry_run: bool) -> Request:
    """Return the request that creates an object. With a name that the server generates (generateName), the request is
    not repeatable: there could be two objects."""
    metadata = body.get("metadata") or {}
    namespace = namespace or metadata.get("namespace", "")
    return Request(
        "POST",
        resource.path(_namespace(resource, namespace)) + _strict(dry_run),
        _action("create", resource, namespace),
        orjson.dumps(body),
        repeatable=bool(metadata.get("name")) or dry_run,
    )


def patch(
    resource: Resource,
    name: str,
    change: Patch,
    namespace: str,
    *,
    subresource: str,
    resource_version: str,
    dry_run: bool,
) -> Request:
    """Return the request that patches an object. A mapping is a merge patch. A sequence is a JSON patch, whose `add`
    must not run twice."""
    merge = isinstance(change, Mapping)
    if resource_version:
        if not isinstance(change, Mapping):
            raise ValueError(
                "a resource_version goes with a merge patch only; put a `test` operation into a JSON patch"
            )
        change = {**change, "metadata": {**change.get("metadata", {}), "resourceVersion": resource_version}}
    return Request(
        "PATCH",
        _object_path(resource, name, namespace, subresource) + _strict(dry_run),
        _action("patch", resource, namespace, name, subresource),
        orjson.dumps(change),
        content_type=MERGE_PATCH if merge else JSON_PATCH,
        repeatable=merge or dry_run,
    )


def delete(
    resource: Resource, name: str, namespace: str, *, uid: str, grace_period_seconds: int | None, dry_run: bool = False
) -> Request:
    """Return the request that deletes one object, and its dependents in the background."""
    options: Manifest = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
    if uid:
        options["preconditions"] = {"uid": uid}
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    if dry_run:
        options["dryRun"] = ["All"]
    path = _object_path(resource, name, namespace)
    return Request("DELETE", path, _action("delete", resource, namespace, name), orjson.dumps(options))


def logs(pod: str, namespace: str, container: str, options: LogOptions, *, follow: bool = False) -> Request:
    """Return the request that reads a container's output."""
    query = {"container": container, "previous": "true" if options.previous else ""} | _log_query(options, follow)
    path = _object_path(PODS, pod, namespace, "log")
    return Request("GET", path + _query(query), _action("read the log of", PODS, namespace, pod))


def job_runs(namespace: str, uid: str) -> Request:
    """Return the request that lists the runs of a TorchJob's containers, which only the embedded API server knows."""
    path = job_logs_path(_segment(namespace, "metadata.namespace"), _segment(uid, "metadata.uid"))
    return Request("GET", path, f"list the logs of job {uid} in namespace {namespace}")


def job_log(namespace: str, uid: str, run: str, options: LogOptions, *, follow: bool = False) -> Request:
    """Return the request that reads the output of one of these runs."""
    path = job_logs_path(
        _segment(namespace, "metadata.namespace"), _segment(uid, "metadata.uid"), _segment(run, "the run")
    )
    action = f"read the log of run {run} of job {uid} in namespace {namespace}"
    return Request("GET", path + _query(_log_query(options, follow)), action)


def _log_query(options: LogOptions, follow: bool) -> dict[str, str]:
    return {
        "follow": "true" if follow else "",
        "tailLines": "" if options.tail is None else str(options.tail),
        "timestamps": "true" if options.timestamps else "",
        "sinceTime": options.since,
        "positions": "true" if options.positions else "",
    }


def service(namespace: str, name: str, path: str, headers: Headers) -> Request:
    """Return the request for a path (with its query) of a service, through the API server's proxy. `name` has the
    proxy's form, `protocol:name:port`."""
    home = SERVICES.path(_segment(namespace, "metadata.namespace"), name, "proxy")
    action = f"ask service {name.split(':')[1]!r} in namespace {namespace}"
    return Request("GET", home + path, action, headers=headers)


def account_token(namespace: str, account: str, audience: str, seconds: int) -> Request:
    """Return the request for a token of a ServiceAccount, for one audience and a time. An empty audience is the API
    server itself."""
    path = SERVICE_ACCOUNTS.path(_segment(namespace, "metadata.namespace"), account, "token")
    spec = {"expirationSeconds": seconds} | ({"audiences": [audience]} if audience else {})
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    action = _action("create", SERVICE_ACCOUNTS, namespace, account, "token")
    return Request("POST", path, action, orjson.dumps(body))


def metrics() -> Request:
    """Return the request that reads the metrics of the server."""
    return Request("GET", "/metrics", "read the metrics")


def _object_path(resource: Resource, name: str, namespace: str, subresource: str = "") -> str:
    return resource.path(_namespace(resource, namespace), _segment(name, "metadata.name"), subresource)


def _collection_path(resource: Resource, namespace: str) -> str:
    return resource.path(_segment(namespace, "metadata.namespace") if namespace else "")


def _namespace(resource: Resource, namespace: str) -> str:
    if not resource.namespaced:
        return ""
    if not namespace:
        raise _invalid("metadata.namespace", f"{resource.plural} need a namespace")
    return _segment(namespace, "metadata.namespace")


def _segment(text: str, field: str) -> str:
    """Return a quoted path segment.

    Raise Invalid, as in Kubernetes, if the name is empty, `.` or `..`, or has `/` or `%`.
    """
    if text in ("", ".", "..") or "/" in text or "%" in text:
        raise _invalid(field, f"{text!r} cannot be a name")
    return quote(text, safe="")


def _invalid(field: str, message: str) -> errors.Invalid:
    return errors.Invalid(f"{field}: {message}", (errors.FieldCause(field, message),))


@cache
def _strict(dry_run: bool) -> str:
    return _query({"fieldValidation": "Strict", "dryRun": "All" if dry_run else ""})


def _query(parameters: Mapping[str, str]) -> str:
    present = {name: value for name, value in parameters.items() if value}
    return "?" + urlencode(present) if present else ""


def _action(verb: str, resource: Resource, namespace: str, name: str = "", subresource: str = "") -> str:
    subject = "/".join(filter(None, [resource.plural, subresource])) + (f" {name!r}" if name else "")
    group = f" ({resource.group})" if resource.group else ""
    return f"{verb} {subject}{group}" + (f" in namespace {namespace}" if namespace and resource.namespaced else "")
