"""The memory of a task's pods, which grows after one of them was killed because it had used up its memory.

One rule: pure, and memory only: nothing here changes the GPUs of a pod. The memory of a pod is that of its main
container, whose end decides the end of the pod.
"""

from collections.abc import Mapping
from typing import Any

from crds.resources import quantities
from crds.torchjob import demand, processes
from crds.torchjob.tasks import MemoryGrowth

MEMORY = "memory"
PodSpec = Mapping[str, Any]


def declared(pod_spec: PodSpec) -> int:
    """Return the memory in bytes that the main container asks for: the larger of its request and its limit; 0 for none.

    Raise ValueError for a text that is not a quantity.
    """
    resources = processes.main_container(pod_spec).get("resources")
    return max((_memory(resources, kind) for kind in ("requests", "limits")), default=0)


def is_of_pod(pod_spec: PodSpec) -> bool:
    """Return whether the pod itself asks for memory or limits it, so that its containers share that memory."""
    return any(_memory(pod_spec.get("resources"), kind) for kind in ("requests", "limits"))


def most(growth: MemoryGrowth) -> int:
    """Return the largest memory of the main container in bytes."""
    return min(quantities.parse_capped(MEMORY, growth.most), demand.LARGEST)


def _memory(resources: Mapping[str, Any] | None, kind: str) -> int:
    return demand.read_resources((resources or {}).get(kind)).get(MEMORY, 0)
