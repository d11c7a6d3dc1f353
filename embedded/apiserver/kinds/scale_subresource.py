"""The scale subresource: a resource's number of replicas as an autoscaling/v1 Scale.

One rule: a Scale is a view of the fields at the paths in the resource's definition.
"""

from typing import Any

from embedded.apiserver import status_errors
from embedded.apiserver.kinds import object_meta
from embedded.apiserver.kinds.catalog import Kind, ScalePaths
from embedded.apiserver.status_errors import StatusError
from embedded.apiserver.storage.objects import StoredObject, field_text, value_at
from kube.api import Manifest

_API_VERSION, _KIND = "autoscaling/v1", "Scale"


def show(kind: Kind, current: StoredObject) -> Manifest:
    """Return the Scale of an object.

    Raise StatusError (InternalError) if the object has no such field, as a Kubernetes API server does.
    """
    paths, manifest = _paths(kind), current.manifest()
    metadata = manifest["metadata"]
    metadata_fields = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    replicas = value_at(manifest, paths.spec)
    if replicas is None:
        raise StatusError(500, "InternalError", f"the spec replicas field {'.' + paths.spec!r} does not exist")
    status: dict[str, Any] = {"replicas": value_at(manifest, paths.status) or 0}
    selector = field_text(manifest, paths.selector) if paths.selector else ""
    if selector:
        status["selector"] = selector
    return {
        "kind": _KIND,
        "apiVersion": _API_VERSION,
        "metadata": {name: metadata[name] for name in metadata_fields if name in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def check(scale: Manifest, namespace: str, name: str) -> None:
    """Raise StatusError (BadRequest) unless the body of a PUT is a Scale of the object on the URL."""
    for key, expected in (("kind", _KIND), ("apiVersion", _API_VERSION)):
        if scale.get(key, expected) != expected:
            raise status_errors.bad_request("no kind is registered for the type v1.Scale")
    _replicas(scale)
    metadata: Any = scale.get("metadata") or {}
    metadata = metadata if isinstance(metadata, dict) else {}
    object_meta.check_namespace_on_url(metadata.get("namespace", namespace), namespace)
    object_meta.check_name_on_url(metadata.get("name"), name)


def _replicas(scale: Manifest) -> int:
    """Return the number of replicas in a Scale. Raise StatusError (BadRequest) if the value is not an integer of 32
    bits.
    """
    spec: Any = scale.get("spec") or {}
    replicas = (spec.get("replicas") or 0) if isinstance(spec, dict) else None
    if not isinstance(replicas, int) or isinstance(replicas, bool) or not -(2**31) <= replicas < 2**31:
        raise status_errors.bad_request("no kind is registered for the type v1.Scale")
    return replicas


def apply(kind: Kind, current: StoredObject, scale: Manifest, *, patch: bool) -> Manifest:
    """Return the object with a Scale's number of replicas.

    Raise StatusError (BadRequest) for a wrong body, and StatusError (Invalid) if the result of a patch is no Scale.
    """
    if patch:
        if (scale.get("kind"), scale.get("apiVersion")) != (_KIND, _API_VERSION):
            raise status_errors.unreadable_patch(f"no kind is registered for the type {scale.get('kind')}")
        try:
            replicas = _replicas(scale)
        except StatusError:
            raise status_errors.unreadable_patch(
                "json: cannot unmarshal spec.replicas into a number of 32 bits"
            ) from None
        metadata: Any = scale.get("metadata") or {}
        object_meta.check_name_on_url(metadata.get("name") if isinstance(metadata, dict) else None, current.name)
    else:
        replicas = _replicas(scale)
    manifest = current.manifest()
    metadata = scale.get("metadata") or {}
    manifest["metadata"].update({key: metadata[key] for key in ("uid", "resourceVersion") if metadata.get(key)})
    parent: Any = manifest
    *steps, last = _paths(kind).spec.split(".")
    for step in steps:
        parent = parent.setdefault(step, {})
    parent[last] = replicas
    return manifest


def _paths(kind: Kind) -> ScalePaths:
    if kind.scale is None:
        raise status_errors.no_such_path()
    return kind.scale
