"""How many processes torchrun starts in each pod of a task.

One rule: pure, over a parsed field and an opaque pod template. What is not written follows from the GPUs that the main
container of a pod asks for, so that `torchrun train.py` uses all of them.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import PlainValidator, WithJsonSchema

from crds.torchjob import demand

MOST = 1024
"""The largest number of processes in one pod."""
GPUS: Literal["gpu"] = "gpu"
"""The word for: as many as the main container has GPUs. It is torchrun's own word for this."""
WRONG = f'write a number from 1 to {MOST}, or "{GPUS}"'
ONE_VALUE = (
    "spec.nprocPerNode and spec.torchElasticPolicy.nprocPerNode are two names of one value and must not differ: "
    "give one of them"
)
MAIN = "torch"
"""Name of the main container; without a container of that name it is the first."""
_SUFFIX = "/gpu"
"""How the names of whole GPUs end: nvidia.com/gpu, amd.com/gpu. A part of a GPU (nvidia.com/mig-1g.5gb) has another
name, and a process can use only one of these."""
_OTHER_GPUS = frozenset(("gpu.intel.com/i915", "gpu.intel.com/xe"))
"""Whole GPUs that are named after their kernel drivers (Intel's device plugin)."""


def _checked(given: Any) -> Any:
    if given == GPUS or (type(given) is int and 1 <= given <= MOST):
        return given
    raise ValueError(WRONG)


NprocPerNode = Annotated[
    int | str,
    PlainValidator(_checked),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "maxLength": 64}),
]
"""A number of processes, or `gpu`."""


def main_container(pod_spec: Mapping[str, Any]) -> dict[str, Any]:
    """The container that trains: the pod ends as it ends. The spec has at least one container, each with a name."""
    containers: list[dict[str, Any]] = pod_spec["containers"]
    return next((each for each in containers if each["name"] == MAIN), containers[0])


def gpus(pod_spec: Mapping[str, Any]) -> int:
    """How many whole GPUs the main container asks for, by its requests or its limits. ValueError for what is not a
    quantity."""
    asked = demand.requests(main_container(pod_spec))
    return sum(amount for name, amount in asked.items() if name.endswith(_SUFFIX) or name in _OTHER_GPUS)


def in_pod(asked: int | str | None, pod_spec: Mapping[str, Any]) -> int:
    """How many processes torchrun starts in a pod: the number that is asked for, else the GPUs of the main container,
    at least 1 and at most 1024."""
    return asked if isinstance(asked, int) else min(max(1, gpus(pod_spec)), MOST)
