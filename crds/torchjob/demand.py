"""Resources that pods request from a cluster, counted as the Kubernetes scheduler counts them.

One rule: pure, and the only way of counting: for a job's charge, for the pods of others and for the embedded scheduler.

Pod specs are opaque JSON. `crds.torchjob.template` has checked those of a parsed TorchJob, and the API server
those of pods.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from crds import node_requirements
from crds.errors import Problem
from crds.resources import quantities
from crds.resources.amounts import JOBS, NOTHING, PODS, Amounts, add, increase, peak, scale
from crds.torchjob.stages import Stage
from crds.torchjob.tasks import WORKER, TaskSpec
from crds.torchjob.worker_range import WorkerRange

PodSpec = Mapping[str, Any]

LARGEST = 2**53 - 1
"""The largest amount that is exact wherever charges are added: Lua counts in floats."""
WHOLE_POD = ("cpu", "memory")
"""Resources that a pod itself may request, besides huge pages."""
NATIVE = ("cpu", "memory", "ephemeral-storage")
"""Resources that every node offers."""
MOST_LISTED = 256
"""Maximum number of names that are counted in one list of resources, in addition to those in NATIVE."""
MOST_CONTAINERS = 500
"""Maximum number of containers that are counted in a pod, and of init containers."""
MOST_QUANTITIES = 2_000
"""Number of quantities in a pod's containers after which only the names in NATIVE are counted."""
MOST_RESOURCES = 63
"""Maximum number of different resources that all pods of a job may request together."""
PORT_NAME = "torchjob-port"
"""The name of the container port to which the other pods of a job connect."""
PORT_VARIABLES = ("MASTER_PORT", "PET_MASTER_PORT")
"""The variables with that port, for python and for torchrun."""
MOST_NAMES = MOST_RESOURCES + 2
"""Maximum number of names in a charge, as in the status that stores it: the resources, `jobs` and `pods`."""
NO_TASKS: Mapping[str, Amounts] = MappingProxyType({})


def read_resources(resources: Mapping[str, Any] | None) -> dict[str, int]:
    """Return a Kubernetes resource list in canonical names and units.

    Raise ValueError with the text that is not a quantity.
    """
    totals: dict[str, int] = {}
    if not resources:
        return totals
    for key, quantity in (resources if len(resources) <= MOST_LISTED else _truncate(resources)).items():
        name = quantities.canonical(key)
        totals[name] = quantities.parse_capped(name, quantity)
    return totals


def _truncate(resources: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first MOST_LISTED names of an overlong list, and the names that every node offers."""
    return dict(islice(resources.items(), MOST_LISTED)) | _native(resources)


def requests(container: Mapping[str, Any]) -> dict[str, int]:
    """Return a container's requests; a limit without a request counts as the request, as in the API server."""
    resources = container.get("resources") or {}
    return read_resources(resources.get("limits")) | read_resources(resources.get("requests"))


def demand_fields(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a container on which the demand of its pod depends."""
    return {"resources": container.get("resources"), "restartPolicy": container.get("restartPolicy")}


def pod_demand(pod_spec: PodSpec) -> dict[str, int]:
    """Return the amounts that the scheduler reserves for one pod, including `pods`: a node runs a limited number of
    pods.

    Containers and sidecars (init containers with restartPolicy Always) run together. An init container runs beside the
    sidecars that come before the init container. The pod needs the larger of the two sums, name by name. Requests of
    the pod itself replace that sum. The overhead is added (k8s.io/component-helpers/resource.PodRequests).
    """
    starting: dict[str, int] = {}
    running: dict[str, int] = {}
    counter = _RequestReader()
    for container in islice(pod_spec.get("initContainers") or (), MOST_CONTAINERS):
        requested = counter.requests_of(container)
        if container.get("restartPolicy") == "Always":
            increase(running, requested)
        else:  # other names of earlier sidecars need no entry here: `running` keeps them to the end
            starting |= {name: max(starting.get(name, 0), running.get(name, 0) + requested[name]) for name in requested}
    for container in islice(pod_spec.get("containers") or (), MOST_CONTAINERS):
        increase(running, counter.requests_of(container))
    together = _pod_level(pod_spec, peak(running, starting))
    demand = {
        name: amount for name, amount in add(together, read_resources(pod_spec.get("overhead"))).items() if amount
    }
    return demand | {PODS: 1}


class _RequestReader:
    """Reads the requests of a pod's containers, up to MOST_QUANTITIES.

    Beyond that number, only the names that every node offers are counted. So a huge pod cannot keep its reader busy.
    """

    def __init__(self) -> None:
        self._remaining = MOST_QUANTITIES

    def requests_of(self, container: Mapping[str, Any]) -> Mapping[str, int]:
        resources = container.get("resources")
        if not resources:
            return NOTHING
        self._remaining -= len(resources.get("requests") or ()) + len(resources.get("limits") or ())
        if self._remaining >= 0:
            return requests(container)
        return requests({"resources": {kind: _native(resources.get(kind)) for kind in ("requests", "limits")}})


def _native(resources: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: resources[name] for name in NATIVE if name in resources} if resources else {}


def _pod_level(pod_spec: PodSpec, summed: dict[str, int]) -> dict[str, int]:
    """Return the requests of a pod, from its own resources and the sum of its containers.

    Requests of the pod itself replace those of its containers. The limits of the pod are used where no container
    requests a resource. A pod itself can request only cpu, memory and huge pages.
    """
    resources = pod_spec.get("resources") or {}
    limits, requested = read_resources(resources.get("limits")), read_resources(resources.get("requests"))
    return _pod_level_only(limits) | summed | _pod_level_only(requested)


def _pod_level_only(amounts: Amounts) -> dict[str, int]:
    """Return the amounts of the resources that Kubernetes supports for a whole pod.

    The rule is that of IsSupportedPodLevelResource in k8s.io/component-helpers/resource.
    """
    return {name: amount for name, amount in amounts.items() if name in WHOLE_POD or name.startswith("hugepages-")}


class StagedSpec(Protocol):
    """The part of a job's spec that its charge depends on."""

    @property
    def torch_task_specs(self) -> Mapping[str, TaskSpec]:
        """The tasks by type."""

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The tasks, grouped by which of them can exist at once."""


class RangedSpec(StagedSpec, Protocol):
    """The part of a job's spec that its charge with a number of workers depends on."""

    @property
    def worker_range(self) -> WorkerRange | None:
        """The numbers of workers with which the job can be admitted; None if the job is admitted with all of its
        workers or none.
        """


class GangSpec(StagedSpec, Protocol):
    """The part of a job's spec that decides which of its pods start together."""

    @property
    def tasks(self) -> Mapping[str, TaskSpec]:
        """The tasks in order."""

    @property
    def min_members(self) -> Mapping[str, int]:
        """For some tasks, the number of pods that must run for the job to count as running."""

    @property
    def least_workers(self) -> int:
        """The least number of workers with which the job can be admitted."""

    def gang_members(self, task_type: str) -> int:
        """Return the number of pods of a task that are bound all or none."""


class ChargedSpec(Protocol):
    """A spec with its charge."""

    @property
    def charge(self) -> Amounts:
        """The result of `job_charge`. Raise ValueError for a text that is not a quantity."""


def pod_charge(task: TaskSpec) -> dict[str, int]:
    """Return one pod's share of its job's charge. The job itself costs `jobs`: 1 in addition.

    An API server without support for the resources of a whole pod drops that field silently. So the charge is the
    larger of the requests of the pod itself and of its containers, name by name. For instance, a pod requests cpu 1 and
    GPUs 0, and its container requests cpu 4 and GPUs 8: the charge is cpu 4 and GPUs 8.
    """
    pod_spec = task.template["spec"]
    without = pod_demand({**pod_spec, "resources": None})
    resources = pod_spec.get("resources")
    if not resources:
        return without
    itself = add(requests(pod_spec), read_resources(pod_spec.get("overhead")))
    return {name: amount for name, amount in peak(without, itself).items() if amount}


def shares(tasks: Mapping[str, TaskSpec]) -> dict[str, Amounts]:
    """Return one pod's share of the charge, for each task."""
    return {name: pod_charge(task) for name, task in tasks.items()}


def charge_of(spec: RangedSpec, workers: int, measured: Mapping[str, Amounts] = NO_TASKS) -> dict[str, int]:
    """Return the amounts that the job takes from its queue's quota and the pool when it is admitted with a number of
    workers.

    If the job has a range, each worker beyond the least number adds the same amounts. The sum is never too small. The
    result is larger than `job_charge` only where another stage requests more of a resource than the stage of the
    workers.
    """
    scope = spec.worker_range
    if scope is None or workers <= scope.least:
        return job_charge(spec, measured, workers)
    return add(job_charge(spec, measured, scope.least), scale(worker_share(spec, measured), workers - scope.least))


def worker_share(spec: StagedSpec, measured: Mapping[str, Amounts] = NO_TASKS) -> Amounts:
    """Return what one further worker adds to a job's charge; nothing for a job without workers."""
    worker = spec.torch_task_specs.get(WORKER)
    return NOTHING if worker is None else peak(pod_charge(worker), measured.get(WORKER, NOTHING))


def job_charge(
    spec: StagedSpec, measured: Mapping[str, Amounts] = NO_TASKS, workers: int | None = None
) -> dict[str, int]:
    """Return the amounts that an admitted job takes from its queue's quota and the pool: one job, and its largest
    demand at a time.

    `measured` is the requests of one existing pod of each task type. The larger of the measured and the template's
    requests is used. `workers` replaces the number of workers.

    For each stage, the demands of the stage and of all stages that overlap it are added. The charge is the largest of
    these sums, name by name. The charge is exact where stages follow each other. The result is never too small, because
    stages that exist at the same time all overlap each other.
    """
    demands = [_tasks_demand(spec, stage.tasks, measured, workers) for stage in spec.stages]
    beside = (
        [demand for other, demand in zip(spec.stages, demands, strict=True) if stage.overlaps(other)]
        for stage in spec.stages
    )
    return reduce(peak, (reduce(add, demands) for demands in beside), {JOBS: 1})


def _tasks_demand(
    spec: StagedSpec, task_types: Iterable[str], measured: Mapping[str, Amounts], workers: int | None
) -> dict[str, int]:
    """Return the total requests of all pods of the given tasks."""
    tasks = ((name, spec.torch_task_specs[name]) for name in task_types)
    demands = (
        scale(
            peak(pod_charge(task), measured.get(name, NOTHING)),
            workers if name == WORKER and workers is not None else task.num_tasks,
        )
        for name, task in tasks
    )
    return reduce(add, demands, dict(NOTHING))


class FirstPods(NamedTuple):
    """The pods of one task that start with their stage. All of them need a node before it can begin."""

    task_type: str
    share: tuple[tuple[str, int], ...]
    """One pod's share of the charge, sorted by name."""
    place: str
    """Where such a pod may run (`crds.node_requirements.place_condition`)."""
    pods: int
    """How many there are."""


def stage_pods(
    spec: GangSpec, stage: Stage, shares: Mapping[str, Amounts], avoided: Sequence[str] = (), domain: str = ""
) -> tuple[FirstPods, ...]:
    """Return the pods of a stage that start together with the least number of workers, given one pod's share of each
    task, the nodes that pods avoid, and the domain in which the job runs (`Admission.domain`)."""
    tasks = ((name, spec.torch_task_specs[name]) for name in stage.tasks)
    return tuple(
        FirstPods(
            task_type=name,
            share=tuple(sorted((resource, amount) for resource, amount in shares[name].items() if amount > 0)),
            place=node_requirements.in_domain(
                node_requirements.place_condition(task.template["spec"], avoided), domain
            ),
            pods=task.num_tasks if task.auxiliary else spec.gang_members(name),
        )
        for name, task in tasks
    )


def beyond_gangs(spec: GangSpec, shares: Mapping[str, Amounts]) -> Amounts:
    """Return the requests of the members without which the job's gangs may begin (`minMembers`), given one pod's share
    of each task."""
    together: dict[str, int] = {}
    for name, task in spec.tasks.items() if spec.min_members else ():
        count = spec.least_workers if name == WORKER else task.num_tasks
        increase(together, shares[name], count - spec.gang_members(name))
    return together or NOTHING


def charge_problems(spec: ChargedSpec) -> Iterator[Problem]:
    """Yield the problems that make a job's charge too large to be stored, for an otherwise valid spec."""
    try:
        charge = spec.charge
    except ValueError as error:
        yield Problem("spec.torchTaskSpecs", f"Invalid value: {error}")
        return
    resources = len(charge.keys() - {JOBS, PODS})
    if resources > MOST_RESOURCES:
        reason = f"all pods together may ask for {MOST_RESOURCES} different resources at most"
        yield Problem("spec.torchTaskSpecs", f"Invalid value: {resources}: {reason}")
    for name, amount in charge.items():
        if amount > LARGEST:
            reason = f"too large: all pods together ask for too much {name}"
            yield Problem("spec.torchTaskSpecs", f"Invalid value: {amount}: {reason}")


@dataclass(frozen=True, slots=True, order=True)
class HostPort:
    """A port that a pod takes on its node."""

    port: int
    protocol: str = "TCP"
    address: str = "0.0.0.0"

    def conflicts(self, other: "HostPort") -> bool:
        """Return whether both ports cannot be taken on one node."""
        wild = "0.0.0.0" in (self.address, other.address)
        return (self.port, self.protocol) == (other.port, other.protocol) and (wild or self.address == other.address)


def host_ports(pod_spec: PodSpec) -> frozenset[HostPort]:
    """Return the ports that a pod takes on its node; with host networking, these are all its container ports."""
    shared = bool(pod_spec.get("hostNetwork"))
    return frozenset(
        HostPort(number, port.get("protocol") or "TCP", port.get("hostIP") or "0.0.0.0")
        for port in _ports(pod_spec)
        if (number := port.get("hostPort") or (port.get("containerPort") if shared else 0))
    )


def chosen_ports(pod_spec: PodSpec, *, leads: bool) -> frozenset[HostPort]:
    """Return the ports that a template itself takes on a node.

    A pod to which others connect (`leads`) listens at PORT_NAME, whose number the template does not choose on a shared
    node, unless it sets a variable of PORT_VARIABLES to a number.
    """
    if not leads:
        return host_ports(pod_spec)
    listed = [port for port in _ports(pod_spec) if port.get("name") != PORT_NAME]
    others = host_ports({"hostNetwork": pod_spec.get("hostNetwork"), "containers": [{"ports": listed}]})
    return others | {HostPort(number) for number in literal_ports(pod_spec)}


def literal_ports(pod_spec: PodSpec) -> list[int]:
    """Return the numbers to which containers of a pod set the variables of PORT_VARIABLES, in the order of these
    variables.
    """
    variables = [variable for container in pod_spec.get("containers") or () for variable in container.get("env") or ()]
    return [
        int(text)
        for name in PORT_VARIABLES
        for variable in variables
        if variable.get("name") == name
        if isinstance(text := variable.get("value"), str) and re.fullmatch("[0-9]{1,5}", text)
        if 0 < int(text) < 65_536
    ]


def _ports(pod_spec: PodSpec) -> Iterable[Mapping[str, Any]]:
    sidecars = (
        container for container in pod_spec.get("initContainers") or () if container.get("restartPolicy") == "Always"
    )
    for container in (*(pod_spec.get("containers") or ()), *sidecars):
        yield from container.get("ports") or ()
