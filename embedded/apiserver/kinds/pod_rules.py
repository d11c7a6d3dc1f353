"""Defaults and validation of pods, except for those in the schema.

One rule: pure; every problem names its field.
"""

from collections.abc import Callable, Iterator
from typing import Any

from embedded.apiserver import status_errors
from embedded.apiserver.kinds import container_rules, metadata, pod_changes, priority_classes, volume_rules
from embedded.apiserver.status_errors import Cause
from kube.api import Manifest

_NAMES: dict[str, Callable[[str], str]] = {
    **dict.fromkeys(("nodeName", "serviceAccountName"), metadata.dns_subdomain_problem),
    **dict.fromkeys(("hostname", "subdomain"), metadata.dns_label_problem),
}
"""The fields that hold names, each with the function that checks the name."""


admit = priority_classes.admit


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
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
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
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        container.setdefault("imagePullPolicy", _pull_policy(container.get("image", "")))


def _pull_policy(image: str) -> str:
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if not digest and tag in {"", "latest"} else "IfNotPresent"


def _tolerations(tolerations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the tolerations with the default ones: five minutes on a node that is not ready or unreachable."""
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
    containers = [_qos_resources(c) for field in ("initContainers", "containers") for c in spec.get(field) or ()]
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
            yield from pod_changes.check(spec, old["spec"])
        yield from pod_changes.check_status(new.get("status") or {}, old.get("status") or {})
        return
    yield from _check_spec(spec)
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            for number, port in enumerate(container.get("ports") or ()):
                if spec.get("hostNetwork") and port.get("hostPort") != port.get("containerPort"):
                    path = f"spec.{field}[{index}].ports[{number}].hostPort"
                    detail = "must match `containerPort` when `hostNetwork` is true"
                    yield status_errors.invalid_value(path, port.get("hostPort", 0), detail)


def _check_spec(spec: dict[str, Any]) -> Iterator[Cause]:
    containers = spec.get("containers") or []
    if not containers:
        yield status_errors.required("spec.containers")
    container_names: set[str] = set()
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            yield from container_rules.check(container, f"spec.{field}[{index}]", container_names)
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
        name = spec.get(field, "")
        if name and problem_of(name):
            yield status_errors.invalid_value(f"spec.{field}", name, problem_of(name))
    for key, value in (spec.get("nodeSelector") or {}).items():
        yield from (
            status_errors.invalid_value("spec.nodeSelector", key, text) for text in metadata.label_key_problems(key)
        )
        yield from (
            status_errors.invalid_value("spec.nodeSelector", value, text)
            for text in metadata.label_value_problems(value)
        )


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
