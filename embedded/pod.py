"""A pod as the embedded scheduler and node see it.

One rule: a pod is parsed once, when it comes from the API server. Code that gets a `LocalPod` does not check it again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from crds import integers, labels, owners
from crds.keys import JobKey
from crds.resources.amounts import PODS, Amounts
from crds.torchjob.demand import HostPort, host_ports, pod_demand
from kube.api import Manifest

SUCCEEDED, FAILED = "Succeeded", "Failed"
FINISHED = (SUCCEEDED, FAILED)
"""The phases in which no process of a pod runs or will run."""
VOLCANO = "volcano"
"""The name of the scheduler whose pods belong to PodGroups."""
_POD_GROUP = "scheduling.k8s.io/group-name"
"""The annotation that names the PodGroup of a pod; Volcano's scheduler reads no other."""
_TASK = "volcano.sh/task-spec"
"""The annotation or label that names the task of the group to which a pod belongs."""
INVALID_SPEC_ERRORS = (ValueError, TypeError, AttributeError, LookupError)
"""The errors that reading an invalid spec raises."""


@dataclass(frozen=True, slots=True)
class PodFailure:
    """The reason for which a pod failed as a whole, whatever its containers did."""

    reason: str
    message: str
    disruption: str = ""
    """The reason of the pod's condition DisruptionTarget; empty if it has no such condition. With a disruption, the
    status shows reason and message before the pod ends."""


@dataclass(frozen=True, slots=True)
class LocalPod:
    """One pod of the cluster."""

    namespace: str
    name: str
    uid: str
    node: str
    """The node to which the pod is bound; empty while it waits for the scheduler."""
    scheduler: str
    phase: str
    created: str
    """The creationTimestamp as text: older pods sort first."""
    deletion_grace: float | None
    """The seconds that its processes have to end; None unless the pod is being deleted."""
    demand: Amounts
    ports: frozenset[HostPort]
    group: str
    """The group with which the pod is bound if it names no PodGroup.

    It has the pod's namespace and its gang, else its owner (not for Volcano's pods), else the pod's uid.
    """
    group_size: int
    """The number of pods in the complete group; 0 if the pod does not state it."""
    manifest: Manifest
    """The whole object as the API server sent it."""
    problem: str = ""
    """The reason why the pod's needs cannot be read from its spec; empty if they can."""
    pod_group: str = ""
    """The PodGroup of its namespace with which the pod is bound; empty if it names none."""
    task: str = ""
    """The task of the PodGroup to which the pod belongs."""

    @property
    def age(self) -> tuple[str, str, str]:
        """A sort key that puts older pods first."""
        return self.created, self.namespace, self.name

    @property
    def is_gated(self) -> bool:
        """Whether the pod has a scheduling gate, so that it must not be scheduled yet."""
        return bool(self.spec.get("schedulingGates"))

    @property
    def is_finished(self) -> bool:
        """Whether the pod has ended for good."""
        return self.phase in FINISHED

    @property
    def is_deleting(self) -> bool:
        """Whether the deletion of the pod was requested."""
        return self.deletion_grace is not None

    @property
    def spec(self) -> Mapping[str, Any]:
        """The pod's spec."""
        spec: Mapping[str, Any] = self.manifest["spec"]
        return spec

    @property
    def containers(self) -> list[Mapping[str, Any]]:
        """All of its containers, init containers last."""
        return [*self.spec["containers"], *(self.spec.get("initContainers") or ())]

    @property
    def status(self) -> Mapping[str, Any]:
        """The pod's status as the API server last showed it."""
        status: Mapping[str, Any] = self.manifest.get("status") or {}
        return status

    @property
    def labels(self) -> Mapping[str, str]:
        """The pod's labels."""
        labels: Mapping[str, str] = self.manifest["metadata"].get("labels") or {}
        return labels

    @property
    def annotations(self) -> Mapping[str, str]:
        """The pod's annotations."""
        annotations: Mapping[str, str] = self.manifest["metadata"].get("annotations") or {}
        return annotations

    @property
    def job(self) -> JobKey | None:
        """The TorchJob that owns the pod; None if no TorchJob owns the pod."""
        uid, name = owners.job_uid(self.manifest["metadata"]), self.labels.get(labels.JOB_NAME)
        return JobKey(self.namespace, name, uid) if uid and name else None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def read(manifest: Manifest) -> LocalPod:
    """Return the pod of a manifest. Raise ValueError, KeyError or TypeError if the manifest is not the manifest of a
    pod.
    """
    metadata, spec = manifest["metadata"], manifest["spec"]
    phase = (manifest.get("status") or {}).get("phase", "Pending")
    needs = _Needs() if phase in FINISHED else _needs(spec)
    deleting = "deletionTimestamp" in metadata
    scheduler = spec.get("schedulerName") or "default-scheduler"
    annotations = metadata.get("annotations") or {}
    pod_group = annotations.get(_POD_GROUP, "") if scheduler == VOLCANO else ""
    task = annotations.get(_TASK) or (metadata.get("labels") or {}).get(_TASK)
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
        group_size=integers.parse(annotations.get(labels.GANG_SIZE), 0),
        manifest=manifest,
        problem=needs.problem,
        pod_group=pod_group,
        task=str(task or "") if pod_group else "",
    )


@dataclass(frozen=True, slots=True)
class _Needs:
    """The resources and host ports that a pod needs from its node."""

    demand: Amounts = field(default_factory=dict)
    ports: frozenset[HostPort] = frozenset()
    problem: str = ""


def _needs(spec: Mapping[str, Any]) -> _Needs:
    try:
        return _Needs(pod_demand(spec), host_ports(spec))
    except INVALID_SPEC_ERRORS as error:
        return _Needs({PODS: 1}, problem=f"what the pod asks for cannot be read: {error}")


def _group(metadata: Mapping[str, Any], *, owned: bool) -> str:
    gang: str | None = (metadata.get("annotations") or {}).get(labels.GANG)
    owners = (metadata.get("ownerReferences") or ()) if owned else ()
    owner = next((owner["uid"] for owner in owners if owner.get("controller")), None)
    # The namespace is a part of the name: a user of one namespace must not be able to join the groups of another
    # namespace.
    return f"{metadata['namespace']}/{gang or owner or metadata['uid']}"
