"""Resource claims of pods (dynamic resource allocation), and the devices that they ask for.

One rule: pure. A pod template names claims, or templates of claims, and not what these ask for. So a worker reads them
and records the devices of each pod (`PodMeasurements`); the charge of the job includes these from then on. Each device
counts under the name of its DeviceClass (`amounts.DEVICES`), as in a ResourceQuota. A queue whose quota names devices
accepts a job only if the quota names each DeviceClass that the job uses.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from crds.resources.amounts import DEVICES, JOBS, Amounts, increase, peak
from crds.torchjob.tasks import TaskSpec

NO_DEVICES = frozenset(
    {"cpu", "memory", "ephemeral-storage", "storage", "persistentvolumeclaims", "pods", JOBS},
)
NO_DEVICE_PREFIXES = ("hugepages-", "attachable-volumes-")
STORAGE_CLASS = ".storageclass.storage.k8s.io/"
REMEDY = "ask for devices in resources.limits of the containers, or have an admin add it to the quota"
MOST_DEVICES = 32
"""The most devices of a request for all devices, as a ResourceQuota counts them: AllocationResultsMaxSize of
k8s.io/api/resource."""


@dataclass(frozen=True, slots=True, order=True)
class ClaimReference:
    """A claim of a pod, in the namespace of the pod."""

    name: str
    is_template: bool = False
    """Whether the name is that of a ResourceClaimTemplate, of which each pod gets a claim of its own."""


def field(tasks: Mapping[str, TaskSpec]) -> str:
    """Return the path of the first field of a job's tasks that claims resources, or an empty string."""
    fields = (
        f"spec.torchTaskSpecs.{name}.template.spec.{at}" for name, task in tasks.items() for at in _claim_fields(task)
    )
    return next(fields, "")


def references(pod_spec: Mapping[str, Any], pod_status: Mapping[str, Any]) -> tuple[ClaimReference, ...]:
    """Return the claims of a pod, or of a template with an empty status.

    The status names the claims that were made from templates. A claim that is not made yet is given by its template.
    """
    statuses = pod_status.get("resourceClaimStatuses") or ()
    made = {entry.get("name"): entry.get("resourceClaimName") for entry in statuses}
    found = []
    for entry in pod_spec.get("resourceClaims") or ():
        claim = entry.get("resourceClaimName") or made.get(entry.get("name"))
        template = entry.get("resourceClaimTemplateName")
        if claim or template:
            found.append(ClaimReference(claim or template, is_template=not claim))
    return tuple(found)


def requested_devices(claim_spec: Mapping[str, Any]) -> dict[str, int]:
    """Return the devices that a claim asks for, as a ResourceQuota counts them.

    Of a request with alternatives, the most of each DeviceClass counts (pkg/quota/v1/evaluator/core of Kubernetes).
    """
    total: dict[str, int] = {}
    for request in (claim_spec.get("devices") or {}).get("requests") or ():
        alternatives = request.get("firstAvailable") or [request.get("exactly") or request]
        most: Amounts = {}
        for each in alternatives:
            count = MOST_DEVICES if each.get("allocationMode") == "All" else each.get("count") or 1
            most = peak(most, {f"{each['deviceClassName']}{DEVICES}": count} if each.get("deviceClassName") else {})
        increase(total, most)
    return total


def devices(names: Iterable[str]) -> tuple[str, ...]:
    """Return the device names among canonical resource names, sorted.

    All names except those of CPU, memory, huge pages, storage, pods and jobs are devices.
    """
    return tuple(sorted(name for name in names if _is_device(name)))


def refusal(queue: str, quota: Iterable[str], counted: Iterable[str] = ()) -> str:
    """Return why a queue with these names in its quota refuses a job with resource claims; empty if it accepts the job.

    `counted` has the names in the charge of the job; without names of claimed devices, these are not counted yet.
    """
    named = devices(quota)
    claimed = sorted(name for name in counted if name.endswith(DEVICES))
    missing = next((name for name in claimed if name not in named), "")
    if not named or (claimed and not missing):
        return ""
    if not claimed and any(name.endswith(DEVICES) for name in named):
        return ""
    return f"the quota of queue {queue} names {named[0]}, but not {missing or f'CLASS{DEVICES}'}: {REMEDY}"


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
