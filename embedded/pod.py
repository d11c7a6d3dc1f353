"""A pod as the embedded scheduler and node see it.

One rule: parsed once, when it comes from the API server; whoever is handed one trusts it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from crds import integers, labels
from crds.resources.amounts import PODS, Amounts
from crds.torchjob.demand import HostPort, host_ports, pod_demand
from kube.api import Manifest

SUCCEEDED, FAILED = "Succeeded", "Failed"
FINISHED = (SUCCEEDED, FAILED)
"""The phases after which nothing of a pod runs or will run."""
VOLCANO = "volcano"
"""The scheduler whose pods belong to PodGroups."""
_POD_GROUP = "scheduling.k8s.io/group-name"
"""Annotation: the PodGroup of a pod. The one key that Volcano's scheduler reads."""
_TASK = "volcano.sh/task-spec"
"""Annotation or label: which of the group's tasks a pod is of."""
NONSENSE = (ValueError, TypeError, AttributeError, LookupError)
"""What comes of reading a spec that makes no sense."""


@dataclass(frozen=True, slots=True)
class LocalPod:
    """One pod of the cluster."""

    namespace: str
    name: str
    uid: str
    node: str
    """The node it is bound to; empty while it waits for the scheduler."""
    scheduler: str
    phase: str
    created: str
    """creationTimestamp; sorts by age."""
    deletion_grace: float | None
    """Seconds its processes have to end; None unless it is being deleted."""
    demand: Amounts
    ports: frozenset[HostPort]
    group: str
    """What it is bound with if it names no PodGroup: its namespace, and its gang, else its owner (not Volcano's pods),
    else itself."""
    group_size: int
    """How many pods the group has when it is complete; 0 if nobody said."""
    manifest: Manifest
    """All of it, as it came."""
    problem: str = ""
    """Why nobody can say what it needs; empty if all is well."""
    pod_group: str = ""
    """The PodGroup of its namespace that it is bound with; empty if it names none."""
    task: str = ""
    """Which of the PodGroup's tasks it is of."""

    @property
    def age(self) -> tuple[str, str, str]:
        """Sorts the older before the younger."""
        return self.created, self.namespace, self.name

    @property
    def gated(self) -> bool:
        """Whether somebody does not want it to be scheduled yet."""
        return bool(self.spec.get("schedulingGates"))

    @property
    def finished(self) -> bool:
        """Whether it has ended for good."""
        return self.phase in FINISHED

    @property
    def deleting(self) -> bool:
        """Whether somebody asked for it to go."""
        return self.deletion_grace is not None

    @property
    def spec(self) -> Mapping[str, Any]:
        """Its spec."""
        spec: Mapping[str, Any] = self.manifest["spec"]
        return spec

    @property
    def status(self) -> Mapping[str, Any]:
        """Its status as the API server last told it."""
        status: Mapping[str, Any] = self.manifest.get("status") or {}
        return status

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""
        found: Mapping[str, str] = self.manifest["metadata"].get("labels") or {}
        return found

    @property
    def annotations(self) -> Mapping[str, str]:
        """Its annotations."""
        annotations: Mapping[str, str] = self.manifest["metadata"].get("annotations") or {}
        return annotations

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def read(manifest: Manifest) -> LocalPod:
    """A pod from its manifest. ValueError, KeyError or TypeError if it is none."""
    metadata, spec = manifest["metadata"], manifest["spec"]
    phase = (manifest.get("status") or {}).get("phase", "Pending")
    over = phase in FINISHED
    needs = _Needs() if over else _needs(spec)
    deleting = "deletionTimestamp" in metadata
    scheduler = spec.get("schedulerName") or "default-scheduler"
    annotations = metadata.get("annotations") or {}
    pod_group = annotations.get(_POD_GROUP, "") if scheduler == VOLCANO else ""
    return LocalPod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        node=spec.get("nodeName", ""),
        scheduler=scheduler,
        phase=phase,
        created=metadata["creationTimestamp"],
        deletion_grace=float(metadata.get("deletionGracePeriodSeconds") or 0) if deleting else None,
        demand=needs.demand,
        ports=needs.ports,
        group=_group(metadata, owned=scheduler != VOLCANO),
        group_size=_group_size(metadata),
        manifest=manifest,
        problem=needs.problem,
        pod_group=pod_group,
        task=_task(metadata) if pod_group else "",
    )


@dataclass(frozen=True, slots=True)
class _Needs:
    """What a pod takes of its node."""

    demand: Amounts = field(default_factory=dict)
    ports: frozenset[HostPort] = frozenset()
    problem: str = ""


def _needs(spec: Mapping[str, Any]) -> _Needs:
    try:
        return _Needs(pod_demand(spec), host_ports(spec))
    except NONSENSE as error:
        return _Needs({PODS: 1}, problem=f"what the pod asks for cannot be read: {error}")


def seconds(timestamp: str) -> float:
    """A Kubernetes time as seconds since the epoch."""
    return datetime.fromisoformat(timestamp).timestamp()


def _task(metadata: Mapping[str, Any]) -> str:
    named = (metadata.get("annotations") or {}).get(_TASK) or (metadata.get("labels") or {}).get(_TASK)
    return str(named or "")


def _group(metadata: Mapping[str, Any], *, owned: bool) -> str:
    named: str | None = (metadata.get("annotations") or {}).get(labels.GANG)
    owners = (metadata.get("ownerReferences") or ()) if owned else ()
    owner = next((owner["uid"] for owner in owners if owner.get("controller")), None)
    # Of its own namespace only: who may make pods in one must not be able to join the groups of another.
    return f"{metadata['namespace']}/{named or owner or metadata['uid']}"


def _group_size(metadata: Mapping[str, Any]) -> int:
    return integers.bounded((metadata.get("annotations") or {}).get(labels.GANG_SIZE), 0)
