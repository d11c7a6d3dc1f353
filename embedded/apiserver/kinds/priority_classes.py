"""PriorityClasses: their validation, and the priority of a new pod.

One rule: a pod's priority comes from its PriorityClass; a client cannot set another value.
"""

from collections.abc import Iterator
from typing import Any

from crds.api_resources import PODS, PRIORITY_CLASSES
from embedded.apiserver import status_errors
from embedded.apiserver.kinds.catalog import ObjectGetter, storage
from embedded.apiserver.status_errors import Cause
from kube.api import Manifest

_HIGHEST = 1_000_000_000
_SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_TEXTS = {
    "system-cluster-critical": "Used for system critical pods that must run in the cluster, but can be moved "
    "to another node if necessary.",
    "system-node-critical": "Used for system critical pods that must not be moved from their current node.",
}


def initial_classes() -> list[Manifest]:
    """Return the PriorityClasses of a new cluster."""
    return [
        PRIORITY_CLASSES.manifest({"name": name}, value=value, description=_TEXTS[name])
        for name, value in _SYSTEM.items()
    ]


def check(new: Manifest, old: Manifest | None) -> Iterator[Cause]:
    """Yield the problems of a PriorityClass, or of its change."""
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


def admit(pod: Manifest, look: ObjectGetter) -> None:
    """Set the priority of a new pod from its PriorityClass.

    Raise StatusError (Forbidden) if the class does not exist.
    """
    spec: Any = pod.get("spec")
    if not isinstance(spec, dict):
        return  # the schema validation reports it
    class_name = spec.get("priorityClassName", "")
    name = pod["metadata"].get("name") or pod["metadata"].get("generateName") or ""
    priority_class = look(storage(PRIORITY_CLASSES), "", class_name) if class_name else {}
    if priority_class is None:
        raise status_errors.forbidden(PODS, name, f"no PriorityClass with name {class_name} was found")
    computed = priority_class.get("value", 0)
    if spec.get("priority", computed) != computed:
        why = (f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority "
               f"admission controller computed {computed} from the given PriorityClass name")  # fmt: skip
        raise status_errors.forbidden(PODS, name, why)
    policy = priority_class.get("preemptionPolicy", "PreemptLowerPriority")
    if spec.get("preemptionPolicy", policy) != policy:
        why = (f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec; "
               f"priority admission controller computed {policy} from the given PriorityClass name")  # fmt: skip
        raise status_errors.forbidden(PODS, name, why)
    spec["priority"], spec["preemptionPolicy"] = computed, policy
