"""The objects that a job owns: its pods, and the headless service of each pod that other pods connect to.

One rule: pure; the same job, admission and member give the same manifest, so that creating it twice is harmless.

The restartPolicy of a pod is decided once, when the pod is created, by the driver for restarts in place
(`status.inPlace`). torchq judges all failures, except those of a service task, which its node restarts without limit.

    driver            the pod
    recreate, local   restartPolicy Never
    kruise            restartPolicy OnFailure: in a restart in place, the node starts what was ended
    kubernetes        restartPolicy Never, and the restart agent (`reconcilers.pods.restart_agent`)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, overload

import orjson

from crds import labels
from crds.api_resources import PODS, SERVICES
from crds.torchjob import demand, grant, memory_growth, rendezvous_task
from crds.torchjob.jobspec import TorchElasticPolicy
from crds.torchjob.status import MOST_LEFT, Admission
from crds.torchjob.tasks import RENDEZVOUS, WORKER, TaskSpec
from crds.torchjob.torchjob import TorchJob
from gang import backends
from gang.backend import Backend
from gang.values import Binding, Gang
from kube.api import Manifest
from reconcilers.pods import (
    added_files,
    container_files,
    environment,
    host_file,
    model_folders,
    node_affinity,
    progress_protocol,
    restart_agent,
    start_gate,
    static_world,
    topology,
)
from reconcilers.pods.task_members import PodMember
from reconcilers.settings import ReconcileSettings
from reconcilers.views import containers

LOOPBACK = "127.0.0.1"
_SORTED = orjson.OPT_SORT_KEYS


@dataclass(frozen=True, kw_only=True)
class Blueprint:
    """The values from which a job's pods are built."""

    job: TorchJob
    admission: Admission
    members: Mapping[str, PodMember]
    settings: ReconcileSettings
    fits_elsewhere: bool = False
    """Whether the job fits on nodes other than those that it avoids."""
    backend: Backend = backends.NONE
    """The gang scheduler that binds the pods."""
    gangs: Mapping[int, Gang] = field(default_factory=dict)
    """The gangs by stage, where a gang scheduler binds the pods."""
    gang_queue: str = ""
    """The gang scheduler's own queue, in which pods of no gang wait, too; empty: its default one."""
    alone: frozenset[str] = frozenset()
    """The names of pods in no gang, which the gang scheduler binds by themselves."""
    open_gates: frozenset[str] = frozenset()
    """The tasks whose pods need not wait at their gate."""
    held: bool = False
    """Whether every pod waits at a gate, because runs from before a restart of the job go on."""
    places: Mapping[str, str] = field(default_factory=dict)
    """The nodes that pods prefer, by the names of the pods."""

    @cached_property
    def specs(self) -> Mapping[str, bytes]:
        """The pod specs by task type, from the templates and with the memory that has grown, as JSON: parsing it is the
        fastest way to a fresh copy."""
        raised = self.job.status.memory
        return {
            name: orjson.dumps(
                memory_growth.enlarge(task.template["spec"], amount)
                if (amount := memory_growth.of_next(task, raised.get(name, 0)))
                else task.template["spec"]
            )
            for name, task in self.job.spec.torch_task_specs.items()
        }

    @cached_property
    def charges(self) -> Mapping[str, str]:
        """The part of the job's charge that one pod of each task type takes, as JSON."""
        return {name: orjson.dumps(share, option=_SORTED).decode() for name, share in self.job.shares.items()}

    @cached_property
    def host_texts(self) -> Mapping[int, str]:
        """The host file of each stage."""
        return host_file.texts(self.job, self.admission, self.members.values())

    @cached_property
    def left_nodes(self) -> Sequence[str]:
        """The nodes that pods of the job have left and do not run elsewhere yet, in the order of their names."""
        left = {name for gone in self.job.status.departed.values() for name in (gone.node, *gone.earlier) if name}
        return sorted(left)[:MOST_LEFT]

    @property
    def driver(self) -> str:
        """The driver that restarts the containers of the pods in place."""
        chosen = self.job.status.in_place
        return "recreate" if chosen is None else chosen.driver

    @property
    def shared_address(self) -> bool:
        """Whether all pods share one machine and its ports."""
        return self.settings.on_machine

    def port(self, lead: str) -> int:
        """Return the port of a pod that others connect to: on a shared machine, the port that its variables set or that
        is reserved for the job; else the port that its template declares."""
        template = self.job.spec.torch_task_specs[self.members[lead].task_type].template
        literal = demand.literal_ports(template["spec"]) if self.shared_address else []
        reserved = self.admission.port if self.on_host(lead) else 0
        return next(iter(literal), reserved) or containers.template_port(template["spec"])

    def on_host(self, lead: str) -> bool:
        """Return whether a pod that others connect to listens on a port of its node."""
        template = self.job.spec.torch_task_specs[self.members[lead].task_type].template
        return self.shared_address or bool(template["spec"].get("hostNetwork"))

    def is_gang_bound(self, member: PodMember) -> bool:
        """Return whether a gang scheduler binds the pod together with other pods."""
        return self.backend.together and not self.task(member).auxiliary

    def binding(self, member: PodMember) -> Binding:
        """Return the fields of the pod for its gang scheduler."""
        if not self.is_gang_bound(member):  # an auxiliary pod waits for no scheduler that its gang does not wait for
            names_other = self.task(member).template["spec"].get("schedulerName")
            return Binding() if names_other else self.backend.bind_alone(self.gang_queue)
        if member.name in self.alone:
            return self.backend.bind_alone(self.gang_queue)
        return self.backend.bind(self.gangs[member.stage], member.task_type.lower())

    def is_at_store(self, member: PodMember) -> bool:
        """Return whether the pods of a pod's stage meet at the job's rendezvous store."""
        return self.job.spec.rendezvous and member.lead == self.job.pod_name(RENDEZVOUS, 0)

    def meets_others(self, member: PodMember) -> bool:
        """Return whether the pod meets others at the rendezvous store, where torchrun gives it its ranks."""
        return self.is_at_store(member) and member.rank is not None

    def is_ordered(self, member: PodMember) -> bool:
        """Return whether the place of the pod decides its rank."""
        return topology.is_ordered(self.job, self.admission, member)

    def has_gate(self, member: PodMember) -> bool:
        """Return whether the pod has a start gate: such a pod is bound before it may start, or starts together with
        other pods.
        """
        if self.is_gang_bound(member) and (self.held or start_gate.needs_gate(self.task(member))):
            return True
        if self.is_ordered(member):
            return True
        is_worker = member.task_type == WORKER
        return is_worker and (self.job.spec.rendezvous or static_world.is_member(self.job, self.admission, member))

    def task(self, member: PodMember) -> TaskSpec:
        """Return the task of a pod."""
        return self.job.spec.torch_task_specs[member.task_type]

    def needs_service(self, lead: str) -> bool:
        """Return whether a pod needs a service with its name: other pods connect to it, or may do so once the job has
        grown."""
        others = any(member.lead == lead and member.name != lead for member in self.members.values())
        return not self.shared_address and (others or self.job.spec.torch_elastic_policy is not None)

    def address(self, lead: str) -> str:
        """Return the address of a pod that others connect to."""
        return lead if self.needs_service(lead) else LOOPBACK


@dataclass(frozen=True, slots=True)
class PodManifests(Sequence[Manifest]):
    """The manifests of some members, each built on access, because thousands of large manifests would take much
    memory."""

    blueprint: Blueprint
    members: tuple[PodMember, ...]

    def __len__(self) -> int:
        return len(self.members)

    @overload
    def __getitem__(self, index: int) -> Manifest: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Manifest]: ...

    def __getitem__(self, index: int | slice) -> Manifest | Sequence[Manifest]:
        if isinstance(index, slice):
            return [pod(self.blueprint, member) for member in self.members[index]]
        return pod(self.blueprint, self.members[index])


def pod(blueprint: Blueprint, member: PodMember) -> Manifest:
    """Return the manifest of one pod, built from its task's template; labels and annotations of torchq override the
    template's."""
    task, binding = blueprint.task(member), blueprint.binding(member)
    template_metadata = task.template.get("metadata") or {}
    marks = {**(template_metadata.get("labels") or {}), **_spot_labels(task, member), **binding.labels}
    notes = {**(template_metadata.get("annotations") or {}), **binding.annotations}
    metadata = {
        **_metadata(blueprint.job, member.name),
        "labels": marks | _pod_labels(blueprint, member),
        "annotations": notes | _pod_annotations(blueprint, member),
    }
    return PODS.manifest(metadata, spec={**_pod_spec(blueprint, member), **binding.spec})


def _spot_labels(task: TaskSpec, member: PodMember) -> Mapping[str, str]:
    return task.spot_task_spec.labels if task.spot_task_spec is not None and member.spot else {}


def service(blueprint: Blueprint, lead: PodMember) -> Manifest:
    """Return the headless service of a pod that others connect to. The service also names a pod that is not ready,
    which may need the other pods to become ready.
    """
    port = blueprint.port(lead.name)
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": _member_labels(blueprint.job, lead),
        "ports": [{"name": containers.PORT_NAME, "port": port, "targetPort": port, "protocol": "TCP"}],
    }
    metadata = {**_metadata(blueprint.job, lead.name), "labels": _member_labels(blueprint.job, lead)}
    return SERVICES.manifest(metadata, spec=spec)


def _metadata(job: TorchJob, name: str) -> Manifest:
    return {"name": name, "namespace": job.metadata.namespace, "ownerReferences": [job.owner]}


def _member_labels(job: TorchJob, member: PodMember) -> dict[str, str]:
    return {
        labels.JOB_NAME: job.metadata.name,
        labels.JOB_UID: job.metadata.uid,
        labels.TASK_TYPE: member.task_type.lower(),
        labels.TASK_INDEX: str(member.index),
    }


def _pod_labels(blueprint: Blueprint, member: PodMember) -> dict[str, str]:
    return _member_labels(blueprint.job, member) | {
        labels.ATTEMPT: str(blueprint.admission.attempt),
        labels.RESTART: str(blueprint.job.status.restart_generation),
        labels.QUEUE: blueprint.admission.queue,
    }


def _pod_annotations(blueprint: Blueprint, member: PodMember) -> dict[str, str]:
    job = blueprint.job
    annotations = {labels.CHARGE: blueprint.charges[member.task_type]}
    if not blueprint.is_gang_bound(member):
        annotations |= {labels.GANG: member.gang, labels.GANG_SIZE: str(member.gang_size)}
    annotations |= static_world.annotations(job, blueprint.admission, member)
    may_start = member.task_type in blueprint.open_gates and not (member.joins or blueprint.is_ordered(member))
    if blueprint.has_gate(member) and may_start:
        annotations[labels.START] = start_gate.OPEN
    if blueprint.meets_others(member):
        annotations[labels.RENDEZVOUS_ID] = environment.rendezvous_id(job)
    if blueprint.left_nodes:
        annotations[labels.LEFT_NODES] = ",".join(blueprint.left_nodes)
    folders = {name: job.metadata.annotations.get(name) for name in (labels.SUBMIT_DIRECTORY, labels.PYTHON_FOLDER)}
    annotations |= {name: folder for name, folder in folders.items() if folder}
    access, hosts = blueprint.settings.reports, blueprint.host_texts
    return annotations | added_files.annotations(job, blueprint.admission, member, access, hosts)


def _pod_spec(blueprint: Blueprint, member: PodMember) -> dict[str, Any]:
    task = blueprint.task(member)
    spec: dict[str, Any] = orjson.loads(blueprint.specs[member.task_type])
    set_restart_policy(spec, task.restart_policy, blueprint.driver)
    _choose_nodes(spec, blueprint, member)
    _prioritize(spec, blueprint, member)
    if spec.get("hostNetwork"):
        # With the default policy, a pod on the host's network does not resolve services.
        spec.setdefault("dnsPolicy", "ClusterFirstWithHostNet")
    access = blueprint.settings.reports
    reports = environment.report_variables(blueprint.job, member.name, access)
    output = container_files.add_output(blueprint.job, member.task_type, spec)
    shutdown = environment.shutdown_variables(blueprint.job, member.task_type)
    files = added_files.add(blueprint.job, member, access, spec)
    models = _models(blueprint, member, spec)
    env = {**_variables(blueprint, member), **shutdown, **reports, **output, **models, **files}
    for container in containers.all_containers(spec):
        own = {**env, **container_files.set_message(container)}
        environment.add_variables(container, progress_protocol.without_own_server(own, container))
    if not blueprint.shared_address:  # a node of a machine has no probes, and reports what it stops itself
        container_files.add_stop_mark(spec)
    if member.name == member.lead:
        containers.declare_port(spec, blueprint.port(member.lead), on_host=blueprint.on_host(member.lead))
        if blueprint.needs_service(member.lead):
            spec |= {"hostname": member.name, "subdomain": member.name}
    if blueprint.has_gate(member):
        start_gate.add_gate(spec)
    if blueprint.driver == restart_agent.DRIVER:
        restart_agent.add_agent(spec)
    return spec


def _models(blueprint: Blueprint, member: PodMember, spec: dict[str, Any]) -> environment.Variables:
    """Add the models that the job reads, and return the variables of these and of the model that it trains."""
    job, task, on_machine = blueprint.job, member.task_type, blueprint.shared_address
    own = model_folders.output_variables(job, task, on_machine=on_machine)
    return {**own, **model_folders.add_inputs(job, task, spec)}


def _choose_nodes(spec: dict[str, Any], blueprint: Blueprint, member: PodMember) -> None:
    """Make a pod stay in the domain of its job, avoid nodes, and prefer the node of its place unless it avoids it."""
    avoided, left = blueprint.job.status.excluded_nodes, blueprint.left_nodes
    node_affinity.require(spec, blueprint.admission.domain)
    node_affinity.avoid(spec, avoided, strictly=blueprint.fits_elsewhere)
    # A preference is enough, since schedulers keep pods from such nodes, and a node may come back under its name.
    node_affinity.avoid(spec, left, strictly=False)
    place = blueprint.places.get(member.name, "")
    if place and place not in avoided and place not in left:
        node_affinity.prefer(spec, place)


def _variables(blueprint: Blueprint, member: PodMember) -> environment.Variables:
    """Return the variables of one pod."""
    spec = blueprint.job.spec
    policy = spec.torch_elastic_policy if spec.is_elastic else None
    bounds = {} if policy is None else environment.elastic_variables(policy)
    port = blueprint.port(member.lead) if member.lead else 0
    if policy is not None and blueprint.meets_others(member):
        return {**_rendezvous_variables(blueprint, member, policy, port), **bounds}
    if spec.rendezvous and member.task_type == RENDEZVOUS:
        return {**environment.BASE, rendezvous_task.PORT_VARIABLE: str(port), **bounds}
    if blueprint.is_at_store(member):
        return {**environment.BASE, **bounds}
    address = blueprint.address(member.lead)
    processes = grant.processes(blueprint.job, blueprint.admission, member.task_type)
    if policy is not None and static_world.is_member(blueprint.job, blueprint.admission, member):
        return {**environment.world_variables(address, port, processes, policy), **bounds}
    static = environment.static_variables(member, address, port, processes)
    return {**static, **(environment.PLACED if blueprint.is_ordered(member) else {}), **bounds}


def _rendezvous_variables(
    blueprint: Blueprint, member: PodMember, policy: TorchElasticPolicy, port: int
) -> environment.Variables:
    return environment.rendezvous_variables(
        policy,
        f"{blueprint.address(member.lead)}:{port}",
        others=member.world_size - blueprint.job.spec.worker_count,
        processes=grant.processes(blueprint.job, blueprint.admission, member.task_type),
        on_loopback=blueprint.shared_address,
    )


def _prioritize(spec: dict[str, Any], blueprint: Blueprint, member: PodMember) -> None:
    """Set the pod's priority class.

    A spot pod has the priority class of its spot task. Every other pod of a gang has the priority class of the
    gang, unless its template names a class.

    Gang schedulers compare the priorities of gangs and of pods. Without a gang scheduler the job's priority class only
    orders its queue; the job's pods must not preempt other pods.
    """
    task = blueprint.task(member)
    if task.spot_task_spec is not None and task.spot_task_spec.priority_class_name and member.spot:
        spec["priorityClassName"] = task.spot_task_spec.priority_class_name
    priority_class = blueprint.job.spec.scheduling_policy.priority_class_name
    if priority_class and blueprint.is_gang_bound(member):
        spec["priorityClassName"] = spec.get("priorityClassName") or priority_class


def set_restart_policy(spec: dict[str, Any], task_policy: str, driver: str) -> None:
    """Set the restartPolicy in a fresh copy of a template, for a task's restartPolicy."""
    if task_policy == "Always":
        spec["restartPolicy"] = "Always"
        return
    spec["restartPolicy"] = "OnFailure" if task_policy != "Never" and driver == "kruise" else "Never"
