"""PriorityClasses: what may be in one, and what one means for a new pod.

One rule: a pod's priority comes from a class; nobody writes it into a pod.
"""

from collections.abc import Iterator
from typing import Any

from crds.api_resources import PODS, PRIORITY_CLASSES
from embedded.apiserver import status_errors
from embedded.apiserver.kinds.catalog import Look, storage
from embedded.apiserver.status_errors import Cause
from kube.api import Manifest

_HIGHEST = 1_000_000_000
_SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_TEXTS = {
    "system-cluster-critical": "Used for system critical pods that must run in the cluster, but can be moved "
    "to another node if necessary.",
    "system-node-critical": "Used for system critical pods that must not be moved from their current node.",
}


def first() -> list[Manifest]:
    """The classes every cluster begins with."""
    return [
        {"apiVersion": PRIORITY_CLASSES.api_version, "kind": "PriorityClass", "metadata": {"name": name},
         "value": value, "description": _TEXTS[name]}
        for name, value in _SYSTEM.items()
    ]  # fmt: skip


def check(new: Manifest, old: Manifest | None) -> Iterator[Cause]:
    """What is wrong with a class, or with the change of one."""
    name, value = new["metadata"].get("name", ""), new["value"]
    if name.startswith("system-") and _SYSTEM.get(name) != value:
        detail = "priority class names with 'system-' prefix are reserved for system use only. error: "
        yield status_errors.not_allowed("metadata.name", f"{detail}{name} is not a known system priority class")
    elif value > _HIGHEST and name not in _SYSTEM:
        yield status_errors.not_allowed("value", f"maximum allowed value of a user defined priority is {_HIGHEST}")
    if old is not None:
        if value != old["value"]:
            yield status_errors.not_allowed("value", "may not be changed in an update.")
        if new["preemptionPolicy"] != old.get("preemptionPolicy", "PreemptLowerPriority"):
            yield status_errors.immutable("preemptionPolicy", new["preemptionPolicy"])


def admit(pod: Manifest, look: Look) -> None:
    """Give a new pod the priority of its class. Forbidden if there is no such class."""
    spec: Any = pod.get("spec")
    if not isinstance(spec, dict):
        return  # which is for the schema to tell
    wanted = spec.get("priorityClassName", "")
    name = pod["metadata"].get("name") or pod["metadata"].get("generateName") or ""
    found = look(storage(PRIORITY_CLASSES), "", wanted) if wanted else {}
    if found is None:
        raise status_errors.forbidden(PODS, name, f"no PriorityClass with name {wanted} was found")
    computed = found.get("value", 0)
    if spec.get("priority", computed) != computed:
        why = (f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority "
               f"admission controller computed {computed} from the given PriorityClass name")  # fmt: skip
        raise status_errors.forbidden(PODS, name, why)
    policy = found.get("preemptionPolicy", "PreemptLowerPriority")
    if spec.get("preemptionPolicy", policy) != policy:
        why = (f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec; "
               f"priority admission controller computed {policy} from the given PriorityClass name")  # fmt: skip
        raise status_errors.forbidden(PODS, name, why)
    spec["priority"], spec["preemptionPolicy"] = computed, policy
