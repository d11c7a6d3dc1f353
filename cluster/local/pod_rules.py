"""What the API server itself knows of pods: defaults, the problems of a spec, what may change after creation.

One rule: pure; every problem names its field.
"""

import re
from collections.abc import Iterator
from typing import Any

from cluster.api import Manifest
from cluster.local import metadata, priorities, refusals
from cluster.local.objects import encode
from cluster.local.refusals import Cause
from crds import quantities

_CHANGEABLE = ("activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations", "nodeName", "schedulingGates")
_IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_ENV_NAME = re.compile(r"[^=\x00-\x1f\x7f]+")


admit = priorities.admit


def complete(new: Manifest, old: Manifest | None) -> None:
    """A new pod is Pending, and its requests default to its limits."""
    if old is not None:
        if "qosClass" in old.get("status", {}):
            new.setdefault("status", {})["qosClass"] = old["status"]["qosClass"]
        return
    spec = new["spec"]
    new["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
    spec["tolerations"] = _tolerations(spec.get("tolerations") or [])
    if spec.get("serviceAccountName") or spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"] = spec.get("serviceAccountName") or spec["serviceAccount"]
    for volume in spec.get("volumes") or ():
        if volume.keys() <= {"name"}:
            volume["emptyDir"] = {}
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        for port in container.get("ports") or () if spec.get("hostNetwork") else ():
            port.setdefault("hostPort", port.get("containerPort", 0))
        container.setdefault("imagePullPolicy", _pull_policy(container.get("image", "")))
        resources = container.get("resources") or {}
        if resources.get("limits"):
            resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
    new["status"]["qosClass"] = _quality(spec)
    if spec.get("schedulingGates"):
        new["status"]["conditions"] = [_gated(new["metadata"]["creationTimestamp"])]


def _gated(moment: str) -> dict[str, Any]:
    """The condition of a pod that nobody may place yet."""
    message = "Scheduling is blocked due to non-empty scheduling gates"
    return {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": message,
            "lastProbeTime": None, "lastTransitionTime": moment}  # fmt: skip


def _pull_policy(image: str) -> str:
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if not digest and tag in {"", "latest"} else "IfNotPresent"


def _tolerations(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With those every pod has of a node that is not there: five minutes."""
    added = []
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(each.get("key", key) == key and each.get("effect", "NoExecute") == "NoExecute" for each in given):
            added.append({"effect": "NoExecute", "key": key, "operator": "Exists", "tolerationSeconds": 300})
    return [*given, *added]


def _quality(spec: dict[str, Any]) -> str:
    asked = [c.get("resources") or {} for field in ("initContainers", "containers") for c in spec.get(field) or ()]
    if not any(resources.get("requests") or resources.get("limits") for resources in asked):
        return "BestEffort"
    equal = all(resources.get("requests") == resources.get("limits") for resources in asked)
    whole = all({"cpu", "memory"} <= (resources.get("limits") or {}).keys() for resources in asked)
    return "Guaranteed" if equal and whole else "Burstable"


def check(new: Manifest, old: Manifest | None) -> Iterator[Cause]:
    """Everything wrong with a pod, or with the change of one."""
    if old is not None:
        yield from _check_change(new["spec"], old["spec"])
        return
    spec = new["spec"]
    containers = spec.get("containers") or []
    if not containers:
        yield refusals.required("spec.containers")
    seen: set[str] = set()
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            yield from _check_container(container, f"spec.{field}[{index}]", seen)
    yield from _check_volumes(spec, {volume.get("name") for volume in spec.get("volumes") or ()})
    if spec["terminationGracePeriodSeconds"] < 0:
        value = spec["terminationGracePeriodSeconds"]
        yield refusals.wrong("spec.terminationGracePeriodSeconds", value, "must be greater than or equal to 0")
    yield from _check_amounts(spec.get("overhead"), "spec.overhead")


def _check_change(new: dict[str, Any], old: dict[str, Any]) -> Iterator[Cause]:
    if encode(_fixed(new)) != encode(_fixed(old)):
        yield refusals.not_allowed("spec", _IMMUTABLE)
    if old.get("nodeName") != new.get("nodeName"):
        yield refusals.not_allowed("spec.nodeName", "a pod is bound through its binding subresource")


def _fixed(spec: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in spec.items() if name not in _CHANGEABLE}
    for field in ("containers", "initContainers"):
        if field in kept:
            kept[field] = [{**container, "image": ""} for container in kept[field]]
    return kept


def _check_container(container: dict[str, Any], path: str, seen: set[str]) -> Iterator[Cause]:
    name = container.get("name", "")
    problem = metadata.label_problem(name)
    if not name:
        yield refusals.required(f"{path}.name")
    elif problem:
        yield refusals.wrong(f"{path}.name", name, problem)
    elif name in seen:
        yield refusals.duplicate(f"{path}.name", name)
    seen.add(name)
    if not container.get("image"):
        yield refusals.required(f"{path}.image")
    for index, variable in enumerate(container.get("env") or ()):
        yield from _check_variable(variable, f"{path}.env[{index}]")
    for index, port in enumerate(container.get("ports") or ()):
        yield from _check_port(port, f"{path}.ports[{index}]")
    yield from _check_resources(container.get("resources") or {}, f"{path}.resources")


def _check_variable(variable: dict[str, Any], path: str) -> Iterator[Cause]:
    if not _ENV_NAME.fullmatch(variable["name"]):
        detail = "a valid environment variable name must consist only of printable characters other than '='"
        yield refusals.wrong(f"{path}.name", variable["name"], detail)
    source = variable.get("valueFrom")
    if source is not None and variable.get("value"):
        yield refusals.wrong(f"{path}.valueFrom", "", "may not be specified when `value` is not empty")
    if source is not None and len(source) != 1:
        yield refusals.wrong(f"{path}.valueFrom", "", "must specify one of: `fieldRef`, `resourceFieldRef`, "
                             "`configMapKeyRef` or `secretKeyRef`")  # fmt: skip


def _check_port(port: dict[str, Any], path: str) -> Iterator[Cause]:
    for field in ("containerPort", "hostPort"):
        if field in port and not 1 <= port[field] <= 65535:
            yield refusals.wrong(f"{path}.{field}", port[field], "must be between 1 and 65535, inclusive")


def _check_resources(resources: dict[str, Any], path: str) -> Iterator[Cause]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    problems = [*_check_amounts(limits, f"{path}.limits"), *_check_amounts(requests, f"{path}.requests")]
    yield from problems
    if problems:
        return
    for name in requests.keys() & limits.keys():
        if quantities.exact(requests[name]) > quantities.exact(limits[name]):
            detail = f"must be less than or equal to {name} limit of {limits[name]}"
            yield refusals.wrong(f"{path}.requests", requests[name], detail)


def _check_amounts(amounts: dict[str, Any] | None, path: str) -> Iterator[Cause]:
    for name, amount in (amounts or {}).items():
        try:
            if quantities.exact(amount) < 0:
                yield refusals.wrong(f"{path}[{name}]", amount, "must be greater than or equal to 0")
        except ValueError as error:
            yield refusals.wrong(f"{path}[{name}]", amount, str(error))


def _check_volumes(spec: dict[str, Any], known: set[str | None]) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or ()):
        name = volume.get("name", "")
        problem = metadata.label_problem(name)
        if problem:
            yield refusals.wrong(f"spec.volumes[{index}].name", name, problem)
        if name in seen:
            yield refusals.duplicate(f"spec.volumes[{index}].name", name)
        seen.add(name)
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            for number, mount in enumerate(container.get("volumeMounts") or ()):
                if mount["name"] not in known:
                    path = f"spec.{field}[{index}].volumeMounts[{number}].name"
                    yield Cause(path, f"Not found: {refusals.shown(mount['name'])}", "FieldValueNotFound")
