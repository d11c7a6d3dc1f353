"""The number of processes that torchrun starts in each pod of a task.

One rule: pure, over a parsed field and an opaque pod template. By default the number of processes is the number of GPUs
that the main container requests, so that `torchrun train.py` uses all of them.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import PlainValidator, WithJsonSchema

from crds.torchjob import demand

MOST = 1024
"""The largest number of processes in one pod."""
GPUS: Literal["gpu"] = "gpu"
"""The value for as many processes as the main container has GPUs; torchrun has the same value."""
WRONG = f'write a number from 1 to {MOST}, or "{GPUS}"'
ONE_VALUE = (
    "spec.nprocPerNode and spec.torchElasticPolicy.nprocPerNode are two names of one value and must not differ: "
    "give one of them"
)
MAIN = "torch"
"""The name of the main container; without a container of that name, the first container is the main one."""
_SUFFIX = "/gpu"
"""The suffix of resource names of whole GPUs: nvidia.com/gpu, amd.com/gpu.

A part of a GPU (nvidia.com/mig-1g.5gb) has another name, and a process can use only one such part.
"""
_OTHER_GPUS = frozenset(("gpu.intel.com/i915", "gpu.intel.com/xe"))
"""Resource names of whole GPUs that are named after their kernel drivers (Intel's device plugin)."""


def _check(value: Any) -> Any:
    if value == GPUS or (type(value) is int and 1 <= value <= MOST):
        return value
    raise ValueError(WRONG)


NprocPerNode = Annotated[
    int | str,
    PlainValidator(_check),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "maxLength": 64}),
]
"""A number of processes, or `gpu`."""


def main_container(pod_spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the container that trains: its end decides the end of the pod.

    The spec has at least one container, and each has a name.
    """
    containers: list[dict[str, Any]] = pod_spec["containers"]
    return next((container for container in containers if container["name"] == MAIN), containers[0])


def gpus(pod_spec: Mapping[str, Any]) -> int:
    """Return the number of whole GPUs that the main container requests, by its requests or its limits.

    Raise ValueError for a text that is not a quantity.
    """
    requests = demand.requests(main_container(pod_spec))
    return sum(amount for name, amount in requests.items() if name.endswith(_SUFFIX) or name in _OTHER_GPUS)


def per_pod(nproc_per_node: int | str | None, pod_spec: Mapping[str, Any]) -> int:
    """Return the number of processes that torchrun starts in a pod.

    The result is `nproc_per_node` if this is a number, else the number of GPUs of the main container, from 1 to 1024.
    """
    return nproc_per_node if isinstance(nproc_per_node, int) else min(max(1, gpus(pod_spec)), MOST)
