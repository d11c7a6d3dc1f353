"""Defaults and validation of pods, except for those in the schema.

One rule: pure; every problem names its field. The spec of a pod is fixed after creation, except for a few fields, which
have their own rules.
"""

from collections.abc import Callable, Iterator
from typing import Any

from embedded.apiserver import status_errors
from embedded.apiserver.kinds import container_rules, object_meta, volume_rules
from embedded.apiserver.status_errors import Cause
from embedded.apiserver.storage.objects import encode
from kube.api import Manifest

_NAMES: dict[str, Callable[[str], str]] = {
    **dict.fromkeys(("nodeName", "serviceAccountName"), object_meta.dns_subdomain_problem),
    **dict.fromkeys(("hostname", "subdomain"), object_meta.dns_label_problem),
}
"""The fields that hold names, each with the function that checks the name."""
_CHANGEABLE = ("activeDeadlineSeconds", "tolerations", "schedulingGates")
_IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def complete(new: Manifest, old: Manifest | None) -> None:
    """Fill in the defaults of a pod: a new pod is Pending, and its requests default to its limits."""
    if old is None:
        _default_new_pod(new, new["spec"])
        return
    _complete_status(new, old)
    spec = new["spec"]
    if spec != old["spec"]:  # both specs have the same types
        spec["tolerations"] = _tolerations(spec.get("tolerations") or [])
        _default_pulls(spec)


def _default_new_pod(new: Manifest, spec: dict[str, Any]) -> None:
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    spec["tolerations"] = _tolerations(spec.get("tolerations") or [])
    if spec.get("serviceAccountName") or spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"] = spec.get("serviceAccountName") or spec["serviceAccount"]
    for volume in spec.get("volumes") or ():
        if volume.keys() <= {"name"}:
            volume["emptyDir"] = {}
    _default_pulls(spec)
    for _, container in container_rules.each(spec):
        _default_container(container, spec)
    new["status"] = {"phase": "Pending", "qosClass": _qos_class(spec)}
    if spec.get("schedulingGates"):
        new["status"]["conditions"] = [_gate_condition(new["metadata"]["creationTimestamp"])]


def _default_container(container: dict[str, Any], spec: dict[str, Any]) -> None:
    for port in container.get("ports") or () if spec.get("hostNetwork") else ():
        port.setdefault("hostPort", port.get("containerPort", 0))
    resources = container.get("resources") or {}
    if resources.get("limits"):
        resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}


def _complete_status(new: Manifest, old: Manifest) -> None:
    status = new.setdefault("status", {})
    if "qosClass" in old.get("status", {}):
        status.setdefault("qosClass", old["status"]["qosClass"])
    for one, several in (("podIP", "podIPs"), ("hostIP", "hostIPs")):
        if status.get(one) and (status.get(several) or [{}])[0].get("ip") != status[one]:
            status[several] = [{"ip": status[one]}]


def _gate_condition(moment: str) -> dict[str, Any]:
    """Return the condition of a pod with scheduling gates."""
    message = "Scheduling is blocked due to non-empty scheduling gates"
    return {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": message,
            "lastProbeTime": None, "lastTransitionTime": moment}  # fmt: skip


def _default_pulls(spec: dict[str, Any]) -> None:
    for _, container in container_rules.each(spec):
        container.setdefault("imagePullPolicy", _pull_policy(container.get("image", "")))


def _pull_policy(image: str) -> str:
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if not digest and tag in {"", "latest"} else "IfNotPresent"


def _tolerations(tolerations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the tolerations with the default tolerations: five minutes on a node that is not ready or unreachable."""
    added = []
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(
            toleration.get("key", key) == key and toleration.get("effect", "NoExecute") == "NoExecute"
            for toleration in tolerations
        ):
            added.append({"effect": "NoExecute", "key": key, "operator": "Exists", "tolerationSeconds": 300})
    return [*tolerations, *added]


def _qos_resources(container: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return a container's requests and limits of cpu and memory, which determine the quality of service."""
    resources = container.get("resources") or {}
    return {
        field: {name: resources[field][name] for name in ("cpu", "memory") if name in (resources.get(field) or {})}
        for field in ("requests", "limits")
    }


def _qos_class(spec: dict[str, Any]) -> str:
    containers = [_qos_resources(container) for _, container in container_rules.each(spec)]
    if not any(resources.get("requests") or resources.get("limits") for resources in containers):
        return "BestEffort"
    equal = all(resources.get("requests") == resources.get("limits") for resources in containers)
    whole = all({"cpu", "memory"} <= (resources.get("limits") or {}).keys() for resources in containers)
    return "Guaranteed" if equal and whole else "Burstable"


def check(new: Manifest, old: Manifest | None) -> Iterator[Cause]:
    """Yield the problems of a pod, or of its change."""
    spec = new["spec"]
    if old is not None:
        if spec != old["spec"]:  # both specs have the same types
            yield from _check_spec(spec)
            yield from _check_change(spec, old["spec"])
        yield from _check_status(new.get("status") or {}, old.get("status") or {})
        return
    yield from _check_spec(spec)
    for path, container in container_rules.each(spec):
        for number, port in enumerate(container.get("ports") or ()):
            if spec.get("hostNetwork") and port.get("hostPort") != port.get("containerPort"):
                detail = "must match `containerPort` when `hostNetwork` is true"
                yield status_errors.invalid_value(f"{path}.ports[{number}].hostPort", port.get("hostPort", 0), detail)


def _check_spec(spec: dict[str, Any]) -> Iterator[Cause]:
    if not spec.get("containers"):
        yield status_errors.required("spec.containers")
    container_names: set[str] = set()
    for path, container in container_rules.each(spec):
        yield from container_rules.check(container, path, container_names)
    yield from volume_rules.check(spec)
    yield from container_rules.check_amounts(spec.get("overhead"), "spec.overhead")
    yield from _check_names(spec)
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        yield from _check_toleration(toleration, f"spec.tolerations[{index}]")
    seconds = spec.get("activeDeadlineSeconds", 1)
    if not 1 <= seconds < 2**31:
        detail = "must be between 1 and 2147483647, inclusive"
        yield status_errors.invalid_value("spec.activeDeadlineSeconds", seconds, detail)


def _check_names(spec: dict[str, Any]) -> Iterator[Cause]:
    for field, problem_of in _NAMES.items():
        if name := spec.get(field, ""):
            yield from status_errors.invalid_values(f"spec.{field}", name, [problem_of(name)])
    yield from object_meta.check_labels(spec.get("nodeSelector") or {}, "spec.nodeSelector")


def _check_toleration(toleration: dict[str, Any], path: str) -> Iterator[Cause]:
    key, operator = toleration.get("key", ""), toleration.get("operator", "")
    if not key and operator != "Exists":
        detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield status_errors.invalid_value(f"{path}.operator", operator, detail)
    if operator == "Exists" and toleration.get("value"):
        yield status_errors.invalid_value(
            f"{path}.operator", toleration["value"], "value must be empty when `operator` is 'Exists'"
        )
    if operator not in {"", "Equal", "Exists"}:
        yield status_errors.not_supported(f"{path}.operator", operator, ("Equal", "Exists"))
    effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
    if toleration.get("effect") and toleration["effect"] not in effects:
        yield status_errors.not_supported(f"{path}.effect", toleration["effect"], effects)


def _check_change(new: dict[str, Any], old: dict[str, Any]) -> Iterator[Cause]:
    """Yield the problems of the change of a pod's spec."""
    several = [f for f in ("containers", "initContainers") if len(new.get(f) or ()) != len(old.get(f) or ())]
    if several:
        yield status_errors.not_allowed(f"spec.{several[0]}", "pod updates may not add or remove containers")
        return
    yield from _check_deadline(new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds"))
    old_gates = {gate.get("name") for gate in old.get("schedulingGates") or ()}
    for index, gate in enumerate(new.get("schedulingGates") or ()):
        if gate.get("name") not in old_gates:
            detail = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            yield status_errors.not_allowed(f"spec.schedulingGates[{index}].name", detail)
    new_tolerations = [_without_seconds(toleration) for toleration in new.get("tolerations") or ()]
    if any(_without_seconds(toleration) not in new_tolerations for toleration in old.get("tolerations") or ()):
        detail = "existing toleration can not be modified except its tolerationSeconds"
        yield status_errors.not_allowed("spec.tolerations", detail)
    if encode(_immutable_part(new)) != encode(_immutable_part(old)):
        yield status_errors.not_allowed("spec", _IMMUTABLE)


def _check_deadline(seconds: int | None, before: int | None) -> Iterator[Cause]:
    path = "spec.activeDeadlineSeconds"
    if seconds is not None and not 0 <= seconds < 2**31:
        yield status_errors.invalid_value(path, seconds, "must be between 0 and 2147483647, inclusive")
    elif seconds is not None and before is not None and seconds > before:
        yield status_errors.invalid_value(path, seconds, "must be less than or equal to previous value")
    elif seconds is None and before is not None:
        yield status_errors.invalid_value(path, None, "must not update from a positive integer to nil value")


def _without_seconds(toleration: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}


def _immutable_part(spec: dict[str, Any]) -> dict[str, Any]:
    fixed = {name: value for name, value in spec.items() if name not in _CHANGEABLE}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [{**container, "image": ""} for container in fixed[field]]
    return fixed


def _check_status(new: dict[str, Any], old: dict[str, Any]) -> Iterator[Cause]:
    """Yield the problems of the change of a pod's status."""
    if "qosClass" in old and new.get("qosClass") != old["qosClass"]:
        yield status_errors.immutable("status.qosClass", new.get("qosClass", ""))
    for index, address in enumerate(new.get("podIPs") or ()):
        ip = address.get("ip", "")
        yield from status_errors.invalid_values(f"status.podIPs[{index}]", ip, [object_meta.ip_address_problem(ip)])
