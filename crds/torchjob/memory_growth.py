"""The memory of a task's pods, which grows after one of them was killed because it had used up its memory.

One rule: pure, and memory only: nothing here changes the GPUs of a pod. The memory of a pod is that of its main
container, whose end decides the end of the pod.
"""

from collections.abc import Mapping
from typing import Any

from crds.resources import quantities
from crds.resources.amounts import Amounts
from crds.torchjob import demand, launched_processes
from crds.torchjob.tasks import MemoryGrowth, TaskSpec

MEMORY = "memory"
UNIT = 2**20
"""The unit to which memory is rounded up, in bytes."""
PodSpec = Mapping[str, Any]


def declared(pod_spec: PodSpec) -> int:
    """Return the memory in bytes that the main container asks for: the larger of its request and its limit; 0 for none.

    Raise ValueError for a text that is not a quantity.
    """
    resources = launched_processes.main_container(pod_spec).get("resources")
    return max((_memory(resources, kind) for kind in ("requests", "limits")), default=0)


def is_of_pod(pod_spec: PodSpec) -> bool:
    """Return whether the pod itself asks for memory or limits it, so that its containers share that memory."""
    return any(_memory(pod_spec.get("resources"), kind) for kind in ("requests", "limits"))


def most(growth: MemoryGrowth) -> int:
    """Return the largest memory of the main container in bytes."""
    return min(quantities.parse_capped(MEMORY, growth.most), demand.LARGEST)


def after_use(growth: MemoryGrowth, used: int) -> int:
    """Return the memory of the next pods after a pod had used up this memory; at most the largest memory."""
    wanted = -(-used * growth.factor_percent // 100)
    return min(-(-wanted // UNIT) * UNIT, most(growth))


def of_next(task: TaskSpec, raised: int) -> int:
    """Return the memory of the main container of a task's next pods, for the raised memory in the job's status.

    The result is 0 if the memory is that of the template.
    """
    if task.memory_growth is None:
        return 0
    amount = min(raised, most(task.memory_growth))
    return amount if amount > declared(task.template["spec"]) else 0


def requests_of_next(tasks: Mapping[str, TaskSpec], raised: Mapping[str, int]) -> dict[str, Amounts]:
    """Return the memory that one of the next pods requests, for each task whose memory has grown."""
    amounts = {name: of_next(task, raised.get(name, 0)) for name, task in tasks.items()}
    pods = {name: enlarge(tasks[name].template["spec"], amount) for name, amount in amounts.items() if amount}
    return {name: {MEMORY: demand.pod_demand(pod)[MEMORY]} for name, pod in pods.items()}


def enlarge(pod_spec: PodSpec, amount: int) -> dict[str, Any]:
    """Return a pod spec whose main container asks for this memory, and is limited to it, where it had less."""
    main = launched_processes.main_container(pod_spec)
    resources = {
        kind: {**listed, MEMORY: quantities.format_amount(MEMORY, amount)}
        for kind, listed in (main.get("resources") or {}).items()
        if kind in ("requests", "limits") and listed and 0 < _memory(main["resources"], kind) < amount
    }
    larger = {**main, "resources": {**(main.get("resources") or {}), **resources}}
    containers = [larger if container is main else container for container in pod_spec["containers"]]
    return {**pod_spec, "containers": containers}


def _memory(resources: Mapping[str, Any] | None, kind: str) -> int:
    return demand.read_resources((resources or {}).get(kind)).get(MEMORY, 0)
