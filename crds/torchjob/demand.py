"""What pods ask of a cluster, counted as the Kubernetes scheduler counts it.

One rule: pure, and one way of counting for everybody: a job's charge, a foreign pod's room and the embedded scheduler.

Pod specs are opaque JSON; those of a parsed TorchJob were checked (`crds.torchjob.template`), those of pods by the API
server.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from types import MappingProxyType
from typing import Any, Protocol

from crds.errors import Problem
from crds.resources import quantities
from crds.resources.amounts import JOBS, NOTHING, PODS, Amounts, add, increase, peak, scale
from crds.torchjob.stages import Stage
from crds.torchjob.tasks import TaskSpec

PodSpec = Mapping[str, Any]

LARGEST = 2**53 - 1
"""The largest amount that is exact wherever charges are added up: Lua counts in floats."""
WHOLE_POD = ("cpu", "memory")
"""What a pod itself may ask for, besides huge pages."""
NATIVE = ("cpu", "memory", "ephemeral-storage")
"""What every node offers."""
MOST_LISTED = 256
"""Names in one list of resources that are looked at, NATIVE ones besides."""
MOST_CONTAINERS = 500
"""Containers of a pod that are counted, and as many init containers."""
MOST_QUANTITIES = 2_000
"""Quantities of a pod's containers after which only NATIVE names are counted."""
MOST_RESOURCES = 63
"""Different resources that all pods of a job together may ask for."""
MOST_NAMES = MOST_RESOURCES + 2
"""Names a charge may have, as in the status that keeps it: the resources, `jobs` and `pods`."""
NO_TASKS: Mapping[str, Amounts] = MappingProxyType({})


def amounts(resources: Mapping[str, Any] | None) -> dict[str, int]:
    """A Kubernetes resource list in canonical names and units. ValueError names the text that is not a quantity."""
    found: dict[str, int] = {}
    if not resources:
        return found
    for key, quantity in (resources if len(resources) <= MOST_LISTED else _first(resources)).items():
        name = quantities.canonical(key)
        found[name] = quantities.capped(name, quantity)
    return found


def _first(resources: Mapping[str, Any]) -> dict[str, Any]:
    """Of a list that is longer than any real one the names that every node offers, and as many others."""
    return dict(islice(resources.items(), MOST_LISTED)) | _native(resources)


def requests(container: Mapping[str, Any]) -> dict[str, int]:
    """A container's requests; where only a limit is given it is the request, as the API server defaults it."""
    resources = container.get("resources") or {}
    return amounts(resources.get("limits")) | amounts(resources.get("requests"))


def pod_demand(pod_spec: PodSpec) -> dict[str, int]:
    """What the scheduler reserves for one pod, and the pod itself: a node runs a limited number of pods.

    Containers and sidecars (init containers with restartPolicy Always) run together; an init container runs beside the
    sidecars before it. The pod needs the larger of both, name by name; requests of the pod itself replace that sum; its
    overhead comes on top (k8s.io/component-helpers/resource.PodRequests).
    """
    starting: dict[str, int] = {}
    running: dict[str, int] = {}
    asked = _Asked()
    for container in islice(pod_spec.get("initContainers") or (), MOST_CONTAINERS):
        wanted = asked.by(container)
        if container.get("restartPolicy") == "Always":
            increase(running, wanted)
        else:  # what sidecars before it ask for of other names, they ask for later, too
            starting |= {name: max(starting.get(name, 0), running.get(name, 0) + wanted[name]) for name in wanted}
    for container in islice(pod_spec.get("containers") or (), MOST_CONTAINERS):
        increase(running, asked.by(container))
    together = _pod_level(pod_spec, peak(running, starting))
    found = {name: amount for name, amount in add(together, amounts(pod_spec.get("overhead"))).items() if amount}
    return found | {PODS: 1}


class _Asked:
    """What containers ask for. Of a pod with more quantities than any real one has, the names that every node offers
    are all counted, the others as long as there are few: whoever writes pods must not keep a reader of them busy."""

    def __init__(self) -> None:
        self._left = MOST_QUANTITIES

    def by(self, container: Mapping[str, Any]) -> Mapping[str, int]:
        resources = container.get("resources")
        if not resources:
            return NOTHING
        self._left -= len(resources.get("requests") or ()) + len(resources.get("limits") or ())
        if self._left >= 0:
            return requests(container)
        return requests({"resources": {kind: _native(resources.get(kind)) for kind in ("requests", "limits")}})


def _native(asked: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: asked[name] for name in NATIVE if name in asked} if asked else {}


def _pod_level(pod_spec: PodSpec, summed: dict[str, int]) -> dict[str, int]:
    """Requests of the pod itself win over its containers'; its limits stand in where no container asks. Of any other
    resource than cpu, memory and huge pages a pod itself cannot ask for anything."""
    resources = pod_spec.get("resources") or {}
    limits, requested = amounts(resources.get("limits")), amounts(resources.get("requests"))
    return _of_a_pod(limits) | summed | _of_a_pod(requested)


def _of_a_pod(found: Amounts) -> dict[str, int]:
    """The resources that Kubernetes supports for a whole pod (k8s.io/component-helpers/resource,
    IsSupportedPodLevelResource)."""
    return {name: amount for name, amount in found.items() if name in WHOLE_POD or name.startswith("hugepages-")}


class Staged(Protocol):
    """What of a job's spec its charge follows from."""

    @property
    def torch_task_specs(self) -> Mapping[str, TaskSpec]:
        """The tasks by type."""

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The tasks by what can exist at once."""


class Charged(Protocol):
    """A spec that knows its charge."""

    @property
    def charge(self) -> Amounts:
        """`job_charge` of it. ValueError for what is not a quantity."""


def pod_charge(task: TaskSpec) -> dict[str, int]:
    """One pod's share of its job's charge. The job itself costs `jobs`: 1 besides.

    An API server that does not support resources of a whole pod drops that field and says nothing. So the charge is the
    larger of what the pod itself and what its containers ask for, name by name: with `requests` cpu 1 and GPUs 0 of the
    pod, and cpu 4 and GPUs 8 of its container, it is cpu 4 and GPUs 8.
    """
    pod_spec = task.template["spec"]
    without = pod_demand({**pod_spec, "resources": None})
    resources = pod_spec.get("resources")
    if not resources:
        return without
    itself = add(requests(pod_spec), amounts(pod_spec.get("overhead")))
    return {name: amount for name, amount in peak(without, itself).items() if amount}


def job_charge(spec: Staged, measured: Mapping[str, Amounts] = NO_TASKS) -> dict[str, int]:
    """What a job takes from its queue's quota and the pool while admitted: one job, and the most it has at once.

    `measured` is, by task type, what a pod that was made asks for: the larger of that and of what its template asks
    for counts.

    Of each stage and all those that can exist beside it the sum, and of these sums the largest, name by name. That is
    exact where stages follow each other, and never too little: stages that all exist at once are all beside each other.
    """
    demands = [_together(spec, stage.tasks, measured) for stage in spec.stages]
    beside = (
        [demand for other, demand in zip(spec.stages, demands, strict=True) if stage.overlaps(other)]
        for stage in spec.stages
    )
    return reduce(peak, (reduce(add, each) for each in beside), {JOBS: 1})


def _together(spec: Staged, task_types: Iterable[str], measured: Mapping[str, Amounts]) -> dict[str, int]:
    """What all pods of some tasks ask for."""
    tasks = ((name, spec.torch_task_specs[name]) for name in task_types)
    each = (scale(peak(pod_charge(task), measured.get(name, NOTHING)), task.num_tasks) for name, task in tasks)
    return reduce(add, each, dict(NOTHING))


def countable(spec: Charged) -> Iterator[Problem]:
    """What makes a job's charge too large to be kept, for a spec that is right otherwise."""
    try:
        charge = spec.charge
    except ValueError as error:
        yield Problem("spec.torchTaskSpecs", f"Invalid value: {error}")
        return
    resources = len(charge.keys() - {JOBS, PODS})
    if resources > MOST_RESOURCES:
        most = f"all pods together may ask for {MOST_RESOURCES} different resources at most"
        yield Problem("spec.torchTaskSpecs", f"Invalid value: {resources}: {most}")
    for name, amount in charge.items():
        if amount > LARGEST:
            much = f"too large: all pods together ask for too much {name}"
            yield Problem("spec.torchTaskSpecs", f"Invalid value: {amount}: {much}")


@dataclass(frozen=True, slots=True, order=True)
class HostPort:
    """A port taken on the pod's node."""

    port: int
    protocol: str = "TCP"
    address: str = "0.0.0.0"

    def conflicts(self, other: "HostPort") -> bool:
        """Whether both cannot be on one node."""
        wild = "0.0.0.0" in (self.address, other.address)
        return (self.port, self.protocol) == (other.port, other.protocol) and (wild or self.address == other.address)


def host_ports(pod_spec: PodSpec) -> frozenset[HostPort]:
    """The ports a pod takes on its node; with host networking every container port is one."""
    shared = bool(pod_spec.get("hostNetwork"))
    return frozenset(
        HostPort(number, port.get("protocol") or "TCP", port.get("hostIP") or "0.0.0.0")
        for port in _ports(pod_spec)
        if (number := port.get("hostPort") or (port.get("containerPort") if shared else 0))
    )


def _ports(pod_spec: PodSpec) -> Iterable[Mapping[str, Any]]:
    sidecars = (each for each in pod_spec.get("initContainers") or () if each.get("restartPolicy") == "Always")
    for container in (*(pod_spec.get("containers") or ()), *sidecars):
        yield from container.get("ports") or ()
