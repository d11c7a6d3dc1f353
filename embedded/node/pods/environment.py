"""What a container executes: its command, its environment and its working directory.

One rule: pure. The node's own environment does not leak in: a few variables of the machine go through, the rest is
the pod's.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crds import labels
from crds.resources import quantities
from crds.resources.amounts import Amounts
from crds.torchjob import demand
from embedded import downward, pod_requirements
from embedded.node.runs.container_runs import Order
from embedded.node.status.pod_status import ADDRESS
from embedded.pod import LocalPod

_PASSED_ON = ("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH")
"""Variables of the machine that containers see."""
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")


@dataclass(frozen=True, slots=True)
class ContainerContext:
    """Where a container runs."""

    base: Mapping[str, str]
    """The variables every container of this node starts from (`base_environment`)."""
    volumes: Mapping[str, str]
    """The folder of each of the pod's volumes."""
    message: str
    """The file that stands for the container's terminationMessagePath."""
    folder: str
    """The pod's own folder, the working directory of a pod that names none."""
    gpus: Sequence[str]
    """The GPUs that are this container's."""
    machine_gpus: bool
    """Whether the node has GPUs at all."""
    allocatable: Amounts
    """What the node has: what a limit that was not set comes to."""


def base_environment(machine: Mapping[str, str], programs: str) -> dict[str, str]:
    """The variables every container starts from; `programs` is the folder of the cluster's own Python."""
    passed = {name: machine[name] for name in _PASSED_ON if name in machine}
    path = machine.get("PATH") or "/usr/local/bin:/usr/bin:/bin"
    return {"LANG": "C.UTF-8", **passed, "PATH": f"{programs}:{path}"}


def order(pod: LocalPod, container: Mapping[str, Any], place: ContainerContext) -> Order:
    """What a container of an accepted pod is to execute."""
    variables = environment(pod, container, place)
    words = [*container["command"], *(container.get("args") or ())]
    command = tuple(expand(word, variables) for word in words)
    directory = container.get("workingDir") or pod.annotations.get(labels.SUBMIT_DIRECTORY) or place.folder
    limits = demand.amounts((container.get("resources") or {}).get("limits"))
    return Order(command, variables, directory, limits.get("memory", 0))


def environment(pod: LocalPod, container: Mapping[str, Any], place: ContainerContext) -> dict[str, str]:
    """A container's variables: the machine's, those the node implies, then the pod's own, which win."""
    found = {**place.base, **_implied(container, place)}
    mounts = pod_requirements.mounts_by_variable(container)
    for declared in container.get("env") or ():
        name = declared["name"]
        if name in mounts:
            found[name] = place.volumes[mounts[name]["name"]]
        elif declared.get("value") and declared["value"] == container.get("terminationMessagePath"):
            found[name] = place.message
        else:
            found[name] = _value(declared, pod, container, place, found)
    if place.gpus or place.machine_gpus:
        # Not the pod's to choose: GPUs are assigned exclusively.
        found["CUDA_VISIBLE_DEVICES"] = ",".join(place.gpus)
    return found


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace $(NAME) as Kubernetes does: unknown names stay as they are, $$ is one dollar."""

    def replacement(found: re.Match[str]) -> str:
        name = found[1]
        return "$" if name is None else variables.get(name, found[0])

    return _REFERENCE.sub(replacement, text)


def _implied(container: Mapping[str, Any], place: ContainerContext) -> dict[str, str]:
    """Threads as many as CPUs were asked for: libraries would else take the whole machine for each container."""
    threads = max(1, demand.requests(container).get("cpu", 0) // 1000)
    folders = {pod_requirements.variable(name): folder for name, folder in place.volumes.items()}
    return {"OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo", **folders}


def _value(
    declared: Mapping[str, Any],
    pod: LocalPod,
    container: Mapping[str, Any],
    place: ContainerContext,
    before: Mapping[str, str],
) -> str:
    source = declared.get("valueFrom") or {}
    if "fieldRef" in source:
        return _field(source["fieldRef"]["fieldPath"], pod)
    if "resourceFieldRef" in source:
        return _resource(source["resourceFieldRef"], pod, container, place)
    return expand(declared.get("value") or "", before)


def _field(path: str, pod: LocalPod) -> str:
    own = downward.field(path, pod.manifest["metadata"])
    if own is not None:
        return own
    known = {"spec.nodeName": pod.node, "spec.serviceAccountName": pod.spec.get("serviceAccountName", "default")}
    return str(known.get(path, ADDRESS))


def _resource(
    reference: Mapping[str, Any], pod: LocalPod, container: Mapping[str, Any], place: ContainerContext
) -> str:
    """A limit or request in units of the divisor, rounded up; a limit that was not set is the node's size."""
    named = reference.get("containerName")
    everyone = [*pod.spec["containers"], *(pod.spec.get("initContainers") or ())]
    chosen = next((each for each in everyone if each["name"] == named), container)
    kind, _, name = reference["resource"].partition(".")
    if kind == "requests":
        amount = demand.requests(chosen).get(name, 0)
    else:
        limits = demand.amounts((chosen.get("resources") or {}).get("limits"))
        amount = limits.get(name, place.allocatable.get(name, 0))
    divisor = quantities.exact(reference.get("divisor") or 1) or 1
    value = quantities.exact(amount) / divisor / (1000 if name == "cpu" else 1)
    return str(-(-value.numerator // value.denominator))
