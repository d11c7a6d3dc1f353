"""What the coordinator keeps of the objects it watches: trimmed, frozen, a few hundred bytes each.

One rule: parsed once at the informer's door; nothing beyond this module sees a manifest.
"""

from dataclasses import dataclass, field
from datetime import datetime

import orjson

from cluster.api import Manifest
from crds import demand, labels, torchjob
from crds.amounts import NOTHING, Amounts
from crds.errors import InvalidObject
from crds.keys import JobKey
from crds.status import Admission

FINISHED_PODS = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A TorchJob as routing sees it."""

    key: JobKey
    queue: str
    submitted: float
    priority: int = 0
    attempt: int = 0
    """The newest attempt ever admitted."""
    charge: Amounts = field(default_factory=dict)
    admission: Admission | None = None
    phase: str = ""
    suspended: bool = False
    held: bool = False
    finished: bool = False
    deleting: bool = False
    invalid: bool = False
    """The object cannot be run as it is; a worker says why in its status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """A pod as the pool and the release of charges see it."""

    namespace: str
    name: str
    job: JobKey | None
    """None: a foreign pod, which only takes room."""
    queue: str
    attempt: int
    occupies: bool
    """True until the pod is Succeeded, Failed or gone; Terminating occupies."""
    deleting: bool = False
    demand: Amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node as the pool sees it."""

    name: str
    ready: bool
    allocatable: Amounts


def job_view(manifest: Manifest) -> JobView:
    """Trim a TorchJob. One that cannot be parsed is kept as invalid, so that somebody tells its owner."""
    try:
        job = torchjob.parse(manifest)
    except InvalidObject:
        return _invalid(manifest)
    return JobView(
        key=job.key,
        queue=job.queue,
        submitted=job.submitted,
        priority=job.spec.scheduling_policy.priority,
        attempt=job.status.attempt,
        charge=demand.job_charge(job.spec),
        admission=job.admission,
        phase=job.status.phase,
        suspended=job.spec.suspend,
        held=job.spec.scheduling_policy.hold,
        finished=job.finished,
        deleting=job.deleting,
    )


def _invalid(manifest: Manifest) -> JobView:
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    return JobView(
        key=JobKey(metadata["namespace"], metadata["name"], metadata["uid"]),
        queue=metadata["namespace"],
        submitted=datetime.fromisoformat(metadata["creationTimestamp"]).timestamp(),
        phase=status.get("phase", ""),
        finished=status.get("phase") == "Failed",
        deleting="deletionTimestamp" in metadata,
        invalid=True,
    )


def pod_view(manifest: Manifest) -> PodView:
    """Trim a pod, ours or foreign."""
    metadata = manifest["metadata"]
    found = metadata.get("labels") or {}
    return PodView(
        namespace=metadata["namespace"],
        name=metadata["name"],
        job=_owner(metadata["namespace"], found),
        queue=found.get(labels.QUEUE, ""),
        attempt=int(found.get(labels.ATTEMPT, 0)),
        occupies=(manifest.get("status") or {}).get("phase") not in FINISHED_PODS,
        deleting="deletionTimestamp" in metadata,
        demand=_demand(manifest),
    )


def _owner(namespace: str, found: dict[str, str]) -> JobKey | None:
    uid = found.get(labels.JOB_UID)
    return JobKey(namespace, found.get(labels.JOB_NAME, ""), uid) if uid else None


def _demand(manifest: Manifest) -> Amounts:
    """Our pods carry their share of the charge; a foreign one takes what the scheduler would count, once it is on a
    node."""
    charge = (manifest["metadata"].get("annotations") or {}).get(labels.CHARGE)
    if charge:
        return {str(name): int(amount) for name, amount in orjson.loads(charge).items()}
    return demand.pod_demand(manifest["spec"]) if manifest["spec"].get("nodeName") else NOTHING


def node_view(manifest: Manifest) -> NodeView:
    """Trim a node."""
    conditions = (manifest.get("status") or {}).get("conditions") or []
    return NodeView(
        name=manifest["metadata"]["name"],
        ready=any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
        and not manifest.get("spec", {}).get("unschedulable", False),
        allocatable=demand.amounts((manifest.get("status") or {}).get("allocatable") or {}),
    )
