"""The scale subresource: a resource's number of replicas as an autoscaling/v1 Scale.

One rule: a Scale is a view; what it shows and changes lives at the paths the resource's definition names.
"""

from typing import Any

from cluster.api import Manifest
from cluster.local import refusals
from cluster.local.catalog import Kind, ScalePaths
from cluster.local.objects import Stored, field_text
from cluster.local.refusals import Refusal

_API_VERSION, _KIND = "autoscaling/v1", "Scale"


def show(kind: Kind, current: Stored) -> Manifest:
    """The Scale of an object. InternalError, as with a Kubernetes API server, if the object has no such field."""
    paths, manifest = _paths(kind), current.manifest()
    own = manifest["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    replicas = _value(manifest, paths.spec)
    if replicas is None:
        raise Refusal(500, "InternalError", f"the spec replicas field {'.' + paths.spec!r} does not exist")
    status: dict[str, Any] = {"replicas": _value(manifest, paths.status) or 0}
    selector = field_text(manifest, paths.selector) if paths.selector else ""
    if selector:
        status["selector"] = selector
    return {
        "kind": _KIND,
        "apiVersion": _API_VERSION,
        "metadata": {name: own[name] for name in kept if name in own},
        "spec": {"replicas": replicas},
        "status": status,
    }


def check_name(scale: Manifest, name: str) -> None:
    """Whether a Scale is of the object on the URL. BadRequest if not."""
    own: Any = scale.get("metadata") or {}
    found = own.get("name") if isinstance(own, dict) else None
    if not found:
        why = f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
        raise refusals.bad_request(why)
    if found != name:
        raise refusals.bad_request(f"the name of the object ({found}) does not match the name on the URL ({name})")


def applied(kind: Kind, current: Stored, scale: Manifest) -> Manifest:
    """The object with a Scale's number of replicas."""
    if (scale.get("kind"), scale.get("apiVersion")) != (_KIND, _API_VERSION):
        raise refusals.bad_request(f"the body is not a {_KIND} of {_API_VERSION}")
    spec: Any = scale.get("spec")
    replicas = spec.get("replicas", 0) if isinstance(spec, dict) else 0
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        cause = refusals.wrong("spec.replicas", replicas, "must be greater than or equal to 0")
        raise refusals.invalid(kind.resource, current.name, [cause])
    manifest = current.manifest()
    own: Any = scale.get("metadata") or {}
    manifest["metadata"].update({key: own[key] for key in ("uid", "resourceVersion") if own.get(key)})
    parent: Any = manifest
    *steps, last = _paths(kind).spec.split(".")
    for step in steps:
        parent = parent.setdefault(step, {})
    parent[last] = replicas
    return manifest


def _paths(kind: Kind) -> ScalePaths:
    if kind.scale is None:
        raise refusals.no_such_path()
    return kind.scale


def _value(manifest: Manifest, path: str) -> Any:
    value: Any = manifest
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value
