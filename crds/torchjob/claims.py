"""Resource claims of a pod template (dynamic resource allocation), which a job's charge does not count.

One rule: pure. A claim does not say how many devices it takes. So a queue with a device in its quota accepts no job
with a resource claim.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from crds.resources.amounts import JOBS
from crds.torchjob.tasks import TaskSpec

NO_DEVICES = frozenset(
    {"cpu", "memory", "ephemeral-storage", "storage", "persistentvolumeclaims", "pods", JOBS},
)
NO_DEVICE_PREFIXES = ("hugepages-", "attachable-volumes-")
STORAGE_CLASS = ".storageclass.storage.k8s.io/"
REMEDY = "ask for devices in resources.limits of the containers, or use a queue whose quota names none"


class TasksSpec(Protocol):
    """The part of a job's spec that this module reads."""

    @property
    def tasks(self) -> Mapping[str, TaskSpec]:
        """The tasks by type, in order."""


def field(spec: TasksSpec) -> str:
    """Return the path of the first field of a job's spec that claims resources, or an empty string."""
    fields = (
        f"spec.torchTaskSpecs.{name}.template.spec.{at}"
        for name, task in spec.tasks.items()
        for at in _claim_fields(task)
    )
    return next(fields, "")


def devices(names: Iterable[str]) -> tuple[str, ...]:
    """Return the device names among canonical resource names, sorted.

    All names except those of CPU, memory, huge pages, storage, pods and jobs are devices.
    """
    return tuple(sorted(name for name in names if _is_device(name)))


def refusal(queue: str, quota: Iterable[str]) -> str:
    """Return why a queue with these names in its quota refuses jobs with resource claims; empty if it accepts them."""
    device_names = devices(quota)
    return (
        f"resource claims are not counted, but the quota of queue {queue} names {device_names[0]}: {REMEDY}"
        if device_names
        else ""
    )


def _is_device(name: str) -> bool:
    return not (name in NO_DEVICES or name.startswith(NO_DEVICE_PREFIXES) or STORAGE_CLASS in name)


def _claim_fields(task: TaskSpec) -> Iterator[str]:
    pod_spec: Mapping[str, Any] = task.template["spec"]
    if pod_spec.get("resourceClaims"):
        yield "resourceClaims"
    if (pod_spec.get("resources") or {}).get("claims"):
        yield "resources.claims"
    for kind in ("initContainers", "containers"):
        for number, container in enumerate(pod_spec.get(kind) or ()):
            if (container.get("resources") or {}).get("claims"):
                yield f"{kind}[{number}].resources.claims"
