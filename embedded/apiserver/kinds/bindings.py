"""The subresources binding and eviction of a pod.

One rule: a pod is bound once; the answer to a second binding names the pod's node.
"""

from dataclasses import replace
from typing import Any

from crds.api_resources import PODS
from embedded.apiserver import status_errors
from embedded.apiserver.kinds import object_meta, preconditions
from embedded.apiserver.kinds.catalog import Kind
from embedded.apiserver.status_errors import StatusError
from embedded.apiserver.storage.objects import StoredObject
from kube.api import Manifest

_BINDING = replace(PODS, plural="pods/binding")
"""The resource that error messages about a binding name."""


def read_pod_name(body: Manifest, kind: str, api_version: str, name: str) -> str:
    """Return the name of the pod in the body of a subresource request; `name` is the name in the path, or empty.

    Raise StatusError (BadRequest) if the body is of another kind or names another pod.
    """
    for key, expected in (("kind", (kind,)), ("apiVersion", (api_version, f"{api_version}beta1"))):
        if body.get(key, expected[0]) not in expected[: 1 if api_version == "v1" else 2]:
            body_kind, version = body.get("kind", kind), body.get("apiVersion", api_version)
            message = f'{body_kind} in version "{str(version).rpartition("/")[2]}" cannot be handled as a {kind}'
            raise status_errors.bad_request(f'{message}: no kind "{body_kind}" is registered for version "{version}"')
    body_metadata: Any = body.get("metadata") or {}
    if not isinstance(body_metadata, dict):
        raise status_errors.bad_request("metadata is not a JSON object")
    body_name = body_metadata.get("name", "")
    if not name and not body_name:
        raise status_errors.bad_request("Name parameter required.")
    if not isinstance(body_name, str) or (name and body_name != name):
        raise status_errors.bad_request(f"name in URL does not match name in {kind} object")
    return body_name


def read_node_name(body: Manifest) -> str:
    """Return the node that a binding names. Raise a StatusError without a reason, as a Kubernetes API server does."""
    target: Any = body.get("target") or {}
    if not isinstance(target, dict):
        raise status_errors.bad_request("target is not a JSON object")
    problems = []
    if target.get("kind", "Node") not in {"Node", ""}:
        problems.append(f'target.kind: Unsupported value: "{target["kind"]}": supported values: "Node", "<empty>"')
    if not target.get("name") or not isinstance(target["name"], str):
        problems.append("target.name: Required value")
    if problems:
        raise StatusError(500, "", problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")
    return str(target["name"])


def bind(kind: Kind, current: StoredObject, body: Manifest, now: float, *, dry_run: bool = False) -> Manifest:
    """Return the pod, bound to the binding's target.

    Raise StatusError (Conflict) if the pod has a node or is being deleted.
    """
    node, binding_metadata = read_node_name(body), body.get("metadata") or {}
    preconditions.check(
        kind, current, binding_metadata.get("uid") or "", binding_metadata.get("resourceVersion") or "", dry_run=dry_run
    )
    pod = current.manifest()
    why = _obstacle(current, pod["spec"])
    if why:
        raise status_errors.conflict(_BINDING, current.name, f"pod {current.name} {why}")
    pod["spec"]["nodeName"] = node
    for field in ("annotations", "labels"):
        if binding_metadata.get(field):
            pod["metadata"][field] = {**pod["metadata"].get(field, {}), **binding_metadata[field]}
    conditions = [c for c in pod["status"].get("conditions") or () if c.get("type") != "PodScheduled"]
    moment = object_meta.timestamp(now)
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": moment}
    pod["status"]["conditions"] = [*conditions, scheduled]
    return pod


def evict(current: StoredObject, now: float) -> Manifest:
    """Return the pod with the condition DisruptionTarget, which announces its deletion."""
    pod, moment = current.manifest(), object_meta.timestamp(now)
    status = pod.setdefault("status", {})
    others = [condition for condition in status.get("conditions") or () if condition.get("type") != "DisruptionTarget"]
    reason = {"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
    disrupted = {"type": "DisruptionTarget", "status": "True", **reason, "lastProbeTime": None}
    status["conditions"] = [*others, {**disrupted, "lastTransitionTime": moment}]
    return pod


def _obstacle(current: StoredObject, spec: Manifest) -> str:
    if current.deleting:
        return "is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f'is already assigned to node "{spec["nodeName"]}"'
    return "has non-empty .spec.schedulingGates" if spec.get("schedulingGates") else ""
