"""The objects a job owns: its pods, and the headless service of each rank 0 that others look for.

One rule: pure; the same job, admission and member give the same manifest, so that making it twice is harmless.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, overload

import orjson

from crds import labels
from crds.api_resources import PODS, SERVICES
from crds.torchjob.status import Admission
from crds.torchjob.tasks import TaskSpec
from crds.torchjob.torchjob import TorchJob
from gang import backends
from gang.backend import Backend
from gang.values import Binding, Gang
from kube.api import Manifest
from reconcilers.plan import start_gates
from reconcilers.pods import environment, node_avoidance, restart_policy
from reconcilers.pods.task_members import Member
from reconcilers.settings import ReconcileSettings
from reconcilers.views import containers

LOOPBACK = "127.0.0.1"
_SORTED = orjson.OPT_SORT_KEYS


@dataclass(frozen=True, kw_only=True)
class Blueprint:
    """What a job's pods are made from."""

    job: TorchJob
    admission: Admission
    members: Mapping[str, Member]
    settings: ReconcileSettings
    elsewhere: bool = False
    """Whether there are nodes besides those that the job avoids."""
    backend: Backend = backends.NONE
    """Who binds the pods."""
    gangs: Mapping[int, Gang] = field(default_factory=dict)
    """By stage, where a gang scheduler binds them."""
    started: frozenset[str] = frozenset()
    """The tasks whose pods need not wait at their gate."""

    @cached_property
    def specs(self) -> Mapping[str, bytes]:
        """The pod specs of the templates, by task type, as JSON: reading it is the quickest way to a fresh copy."""
        return {name: orjson.dumps(task.template["spec"]) for name, task in self.job.spec.torch_task_specs.items()}

    @cached_property
    def charges(self) -> Mapping[str, str]:
        """What one pod of each task type takes of the job's charge, as JSON."""
        return {name: orjson.dumps(share, option=_SORTED).decode() for name, share in self.job.shares.items()}

    @property
    def shared_address(self) -> bool:
        """Whether all pods share one machine and its ports."""
        return self.settings.master_address == "loopback"

    def port(self, lead: str) -> int:
        """Where a rank 0 listens: the port held for the job on a machine it shares, else what its template declares."""
        template = self.job.spec.torch_task_specs[self.members[lead].task_type].template
        held = self.admission.port if self.on_host(lead) else 0
        return held or containers.declared_port(template["spec"])

    def on_host(self, lead: str) -> bool:
        """Whether a rank 0 listens at a port of its node."""
        template = self.job.spec.torch_task_specs[self.members[lead].task_type].template
        return self.shared_address or bool(template["spec"].get("hostNetwork"))

    def bound(self, member: Member) -> bool:
        """Whether a gang scheduler binds the pod with others."""
        return self.backend.together and not self.task(member).auxiliary

    def binding(self, member: Member) -> Binding:
        """What the pod carries for it."""
        if not self.bound(member):
            return Binding()
        return self.backend.bind(self.gangs[member.stage], member.task_type.lower())

    def task(self, member: Member) -> TaskSpec:
        """Of a pod."""
        return self.job.spec.torch_task_specs[member.task_type]

    def named(self, lead: str) -> bool:
        """Whether a rank 0 needs a service that names it: others look for it, or may do so once the job has grown."""
        others = any(each.lead == lead and each.name != lead for each in self.members.values())
        return not self.shared_address and (others or self.job.spec.torch_elastic_policy is not None)

    def processes(self, task_type: str) -> int:
        """How many processes torchrun starts in a pod of a task, as the job was admitted."""
        admitted = self.admission.nproc_per_node
        if admitted is not None:
            return admitted.get(task_type, 1)
        policy = self.job.spec.torch_elastic_policy
        asked = policy.nproc_per_node if policy is not None else None
        return asked if isinstance(asked, int) else 1

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
    task, binding = blueprint.task(member), blueprint.binding(member)
    theirs = task.template.get("metadata") or {}
    marks = {**(theirs.get("labels") or {}), **_spot_labels(task, member), **binding.labels}
    notes = {**(theirs.get("annotations") or {}), **binding.annotations}
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {
            **_metadata(blueprint.job, member.name),
            "labels": marks | _pod_labels(blueprint, member),
            "annotations": notes | _pod_annotations(blueprint, member),
        },
        "spec": {**_pod_spec(blueprint, member), **binding.spec},
    }


def _is_spot(task: TaskSpec, member: Member) -> bool:
    """The last pods of a task are on cheaper nodes: rank 0 is the last to go there."""
    return task.spot_task_spec is not None and member.index >= task.num_tasks - task.spot_task_spec.num_spot_tasks


def _spot_labels(task: TaskSpec, member: Member) -> Mapping[str, str]:
    return task.spot_task_spec.labels if task.spot_task_spec is not None and _is_spot(task, member) else {}


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
        "ownerReferences": [job.owner],
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


def _pod_annotations(blueprint: Blueprint, member: Member) -> dict[str, str]:
    job, task = blueprint.job, blueprint.task(member)
    found = {labels.CHARGE: blueprint.charges[member.task_type]}
    if not blueprint.bound(member):
        found |= {labels.GANG: member.gang, labels.GANG_SIZE: str(member.gang_size)}
    elif start_gates.gated(task) and member.task_type in blueprint.started:
        found |= {labels.START: start_gates.OPEN}
    folder = job.metadata.annotations.get(labels.SUBMIT_DIRECTORY)
    return found | ({labels.SUBMIT_DIRECTORY: folder} if folder else {})


def _pod_spec(blueprint: Blueprint, member: Member) -> dict[str, Any]:
    task = blueprint.task(member)
    spec: dict[str, Any] = orjson.loads(blueprint.specs[member.task_type])
    restart_policy.apply(spec, task.restart_policy, blueprint.job.spec.scope, blueprint.settings.in_place)
    node_avoidance.avoid(spec, blueprint.job.status.excluded_nodes, strictly=blueprint.elsewhere)
    _prioritize(spec, blueprint, member)
    if spec.get("hostNetwork"):
        spec.setdefault("dnsPolicy", "ClusterFirstWithHostNet")  # the default one knows no services there
    port = blueprint.port(member.lead) if member.lead else 0
    processes = blueprint.processes(member.task_type)
    found = environment.variables(member, blueprint.address(member.lead), port, processes)
    for container in containers.all_of(spec):
        environment.add(container, found)
        container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    if member.name == member.lead:
        containers.declare_port(spec, port, on_host=blueprint.on_host(member.lead))
        if blueprint.named(member.lead):
            spec |= {"hostname": member.name, "subdomain": member.name}
    if blueprint.bound(member) and start_gates.gated(task):
        start_gates.add(spec)
    return spec


def _prioritize(spec: dict[str, Any], blueprint: Blueprint, member: Member) -> None:
    """A spot pod has the priority of its spot task; of a gang every pod has the gang's, unless its template names one.

    Gang schedulers compare the priorities of gangs and of pods. Where none is at work the job's priority class orders
    its queue and no more: nobody expects it to push other pods off their nodes.
    """
    task = blueprint.task(member)
    if task.spot_task_spec is not None and task.spot_task_spec.priority_class_name and _is_spot(task, member):
        spec["priorityClassName"] = task.spot_task_spec.priority_class_name
    named = blueprint.job.spec.scheduling_policy.priority_class_name
    if named and blueprint.bound(member):
        spec["priorityClassName"] = spec.get("priorityClassName") or named
