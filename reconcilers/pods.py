"""The objects a job owns: its pods, and the headless service of each rank 0 that others look for.

One rule: pure; the same job, admission and member give the same manifest, so that making it twice is harmless.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import orjson

from cluster.api import Manifest
from crds import demand, labels
from crds.resources import PODS, SERVICES, TORCHJOBS
from crds.status import Admission
from crds.torchjob import TorchJob
from reconcilers import avoidance, containers, environment, restart_policy
from reconcilers.settings import ReconcileSettings
from reconcilers.tasks import Member

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """What a job's pods are made from."""

    job: TorchJob
    admission: Admission
    members: Mapping[str, Member]
    settings: ReconcileSettings
    elsewhere: bool = False
    """Whether there are nodes besides those that the job avoids."""

    @property
    def shared_address(self) -> bool:
        """Whether all pods share one machine and its ports."""
        return self.settings.master_address == "loopback"

    def port(self, lead: str) -> int:
        """Where a rank 0 listens: the port held for the job on a shared machine, else what its template declares."""
        template = self.job.spec.torch_task_specs[self.members[lead].task_type].template
        held = self.admission.port if self.shared_address else 0
        return held or containers.declared_port(template["spec"])

    def named(self, lead: str) -> bool:
        """Whether a rank 0 needs a service that names it: others look for it, or may do so once the job has grown."""
        others = any(each.lead == lead and each.name != lead for each in self.members.values())
        return not self.shared_address and (others or self.job.spec.torch_elastic_policy is not None)

    def address(self, lead: str) -> str:
        """Where a rank 0 is found."""
        return lead if self.named(lead) else LOOPBACK


@dataclass(frozen=True, slots=True)
class Pods(Sequence[Manifest]):
    """The manifests of some members, each made when it is asked for: thousands of large ones are never all there."""

    blueprint: Blueprint
    members: tuple[Member, ...]

    def __len__(self) -> int:
        return len(self.members)

    @overload
    def __getitem__(self, index: int) -> Manifest: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Manifest]: ...

    def __getitem__(self, index: int | slice) -> Manifest | Sequence[Manifest]:
        if isinstance(index, slice):
            return [pod(self.blueprint, each) for each in self.members[index]]
        return pod(self.blueprint, self.members[index])


def pod(blueprint: Blueprint, member: Member) -> Manifest:
    """One pod, from its task's template; labels and annotations of ours win over the template's."""
    job = blueprint.job
    template = job.spec.torch_task_specs[member.task_type].template
    theirs = template.get("metadata") or {}
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {
            **_metadata(job, member.name),
            "labels": {**(theirs.get("labels") or {}), **_pod_labels(blueprint, member)},
            "annotations": {**(theirs.get("annotations") or {}), **_pod_annotations(job, member)},
        },
        "spec": _pod_spec(blueprint, member),
    }


def service(blueprint: Blueprint, lead: Member) -> Manifest:
    """The headless service that names a rank 0, before it is ready too: it may need the others to become so."""
    port = blueprint.port(lead.name)
    return {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": {**_metadata(blueprint.job, lead.name), "labels": _member_labels(blueprint.job, lead)},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": _member_labels(blueprint.job, lead),
            "ports": [{"name": containers.PORT_NAME, "port": port, "targetPort": port, "protocol": "TCP"}],
        },
    }


def _metadata(job: TorchJob, name: str) -> Manifest:
    return {
        "name": name,
        "namespace": job.metadata.namespace,
        "ownerReferences": [
            {
                "apiVersion": TORCHJOBS.api_version,
                "kind": TORCHJOBS.kind,
                "name": job.metadata.name,
                "uid": job.metadata.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def _member_labels(job: TorchJob, member: Member) -> dict[str, str]:
    return {
        labels.JOB_NAME: job.metadata.name,
        labels.JOB_UID: job.metadata.uid,
        labels.TASK_TYPE: member.task_type.lower(),
        labels.TASK_INDEX: str(member.index),
    }


def _pod_labels(blueprint: Blueprint, member: Member) -> dict[str, str]:
    return _member_labels(blueprint.job, member) | {
        labels.ATTEMPT: str(blueprint.admission.attempt),
        labels.RESTART: str(blueprint.job.status.restart_generation),
        labels.QUEUE: blueprint.admission.queue,
    }


def _pod_annotations(job: TorchJob, member: Member) -> dict[str, str]:
    charge = demand.pod_charge(job.spec.torch_task_specs[member.task_type])
    found = {
        labels.CHARGE: orjson.dumps(charge, option=orjson.OPT_SORT_KEYS).decode(),
        labels.GANG: member.gang,
        labels.GANG_SIZE: str(member.gang_size),
    }
    folder = job.metadata.annotations.get(labels.SUBMIT_DIRECTORY)
    return found | ({labels.SUBMIT_DIRECTORY: folder} if folder else {})


def _pod_spec(blueprint: Blueprint, member: Member) -> dict[str, Any]:
    task = blueprint.job.spec.torch_task_specs[member.task_type]
    spec: dict[str, Any] = copy.deepcopy(task.template["spec"])
    restart_policy.apply(spec, task.restart_policy, blueprint.job.spec.scope, blueprint.settings.in_place)
    avoidance.avoid(spec, blueprint.job.status.excluded_nodes, strictly=blueprint.elsewhere)
    port = blueprint.port(member.lead) if member.lead else 0
    found = environment.variables(blueprint.job.spec, member, blueprint.address(member.lead), port)
    for container in containers.all_of(spec):
        environment.add(container, found)
        container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    if member.name == member.lead:
        containers.declare_port(spec, port, on_host=blueprint.shared_address)
        if blueprint.named(member.lead):
            spec |= {"hostname": member.name, "subdomain": member.name}
    return spec
