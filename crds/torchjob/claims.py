"""Devices that a pod template asks for with resource claims (dynamic resource allocation), which no charge counts.

One rule: pure. A claim says nothing of how many devices it takes, so a queue whose quota names a device takes no job
that has one.
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


class Tasked(Protocol):
    """What of a job's spec is looked at."""

    @property
    def tasks(self) -> Mapping[str, TaskSpec]:
        """The tasks by type, in order."""


def field(spec: Tasked) -> str:
    """The first field of a job's spec that claims resources; empty if there is none."""
    found = (f"spec.torchTaskSpecs.{name}.template.spec.{at}" for name, task in spec.tasks.items() for at in _of(task))
    return next(found, "")


def devices(names: Iterable[str]) -> tuple[str, ...]:
    """Of canonical resource names those of devices, sorted: all but CPU, memory, huge pages, storage, pods and jobs."""
    return tuple(sorted(name for name in names if _is_device(name)))


def refusal(queue: str, quota: Iterable[str]) -> str:
    """Why a queue with a quota of these names takes no job that claims resources; empty if it takes one."""
    named = devices(quota)
    return (
        f"resource claims are not counted, but the quota of queue {queue} names {named[0]}: {REMEDY}" if named else ""
    )


def _is_device(name: str) -> bool:
    return not (name in NO_DEVICES or name.startswith(NO_DEVICE_PREFIXES) or STORAGE_CLASS in name)


def _of(task: TaskSpec) -> Iterator[str]:
    pod_spec: Mapping[str, Any] = task.template["spec"]
    if pod_spec.get("resourceClaims"):
        yield "resourceClaims"
    if (pod_spec.get("resources") or {}).get("claims"):
        yield "resources.claims"
    for kind in ("initContainers", "containers"):
        for number, container in enumerate(pod_spec.get(kind) or ()):
            if (container.get("resources") or {}).get("claims"):
                yield f"{kind}[{number}].resources.claims"
