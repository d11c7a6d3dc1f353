"""The command, the environment and the working directory of a container.

One rule: pure. The node's own environment does not leak in. A few variables of the machine are passed to the container;
the pod defines the others.
"""

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from crds import labels
from crds.resources import quantities
from crds.resources.amounts import Amounts
from crds.torchjob import demand
from embedded import config_sources, downward, pod_requirements
from embedded.config_sources import ConfigObjects
from embedded.node.runs.container_runs import Order
from embedded.node.status.pod_status import ADDRESS
from embedded.pod import LocalPod

_PASSED_ON = ("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH")
"""The variables of the machine that containers get."""
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")


@dataclass(frozen=True, slots=True)
class ContainerContext:
    """The paths, variables and devices that the node provides to a container."""

    base: Mapping[str, str]
    """The variables from which the environment of every container starts (`base_environment`)."""
    volumes: Mapping[str, str]
    """The folder of each of the pod's volumes."""
    message: str
    """The file that replaces the container's terminationMessagePath."""
    folder: str
    """The pod's own folder: the working directory of a pod that names none."""
    gpus: Sequence[str]
    """The GPUs that are assigned to this container."""
    machine_gpus: bool
    """Whether the node has any GPUs."""
    allocatable: Amounts
    """The resources of the node: the values of limits that are not set."""
    output: str = ""
    """The folder of the pod's TorchJob that outlives the pod; empty if it belongs to none."""
    models: Mapping[str, str] = field(default_factory=dict)
    """The folders of the models that the container reads, by the paths of their mounts."""
    objects: ConfigObjects = field(default_factory=dict)
    """The ConfigMaps and Secrets that the container's variables are read from."""


def base_environment(machine: Mapping[str, str], programs: str) -> dict[str, str]:
    """Return the variables from which every container starts; `programs` is the folder of the cluster's own Python."""
    passed = {name: machine[name] for name in _PASSED_ON if name in machine}
    path = machine.get("PATH") or "/usr/local/bin:/usr/bin:/bin"
    return {"LANG": "C.UTF-8", **passed, "PATH": f"{programs}:{path}"}


def order(pod: LocalPod, container: Mapping[str, Any], context: ContainerContext) -> Order:
    """Return the command that a container of an accepted pod executes.

    Raise NotReady if an object that it needs is missing, and ValueError if an annotation of the pod is wrong.
    """
    variables = environment(pod, container, context)
    arguments = [*container["command"], *(container.get("args") or ())]
    command = tuple(expand(argument, variables) for argument in arguments)
    directory = _working_folder(container, context) or pod.annotations.get(labels.SUBMIT_DIRECTORY) or context.folder
    limits = demand.read_resources((container.get("resources") or {}).get("limits"))
    return Order(command, variables, directory, limits.get("memory", 0))


def environment(pod: LocalPod, container: Mapping[str, Any], context: ContainerContext) -> dict[str, str]:
    """Return a container's variables: the machine's, then the node's, then the pod's own, which override the others."""
    variables = {**context.base, "PATH": _path(pod, context), **_node_variables(container, context)}
    mounts = pod_requirements.mounts_by_variable(container)
    for entry in container.get("env") or ():
        name = entry["name"]
        if name in mounts:
            variables[name] = _folder(mounts[name], context)
        elif entry.get("value") and entry["value"] == container.get("terminationMessagePath"):
            variables[name] = context.message
        elif (value := _value(entry, pod, container, context, variables)) is not None:
            variables[name] = value
    if context.gpus or context.machine_gpus:
        # The pod must not choose its GPUs: they are assigned exclusively.
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(context.gpus)
    return variables


def _folder(mount: Mapping[str, Any], context: ContainerContext) -> str:
    """Return the folder of a mount on this machine."""
    return context.models.get(mount["mountPath"]) or context.volumes[mount["name"]]


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace $(NAME) as Kubernetes does: an unknown name stays as it is, and $$ becomes one dollar sign."""

    def replacement(match: re.Match[str]) -> str:
        name = match[1]
        return "$" if name is None else variables.get(name, match[0])

    return _REFERENCE.sub(replacement, text)


def _node_variables(container: Mapping[str, Any], context: ContainerContext) -> dict[str, str]:
    """Return the variables that the node sets.

    A container gets one thread for each CPU that it requests. Otherwise libraries would start one thread for each CPU
    of the whole machine in every container.
    """
    threads = max(1, demand.requests(container).get("cpu", 0) // 1000)
    folders = {pod_requirements.variable(name): folder for name, folder in context.volumes.items()}
    output = {pod_requirements.OUTPUT: context.output} if context.output else {}
    return {"OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo", **folders, **output}


def _path(pod: LocalPod, context: ContainerContext) -> str:
    """Return PATH, with the folder of the Python that the pod asks for in front."""
    path, folder = context.base["PATH"], pod.annotations.get(labels.PYTHON_FOLDER)
    if not folder:
        return path
    if not folder.startswith("/") or ":" in folder:
        raise ValueError(f"annotation {labels.PYTHON_FOLDER} must be an absolute path without a colon, not {folder!r}")
    return f"{folder}:{path}"


def _working_folder(container: Mapping[str, Any], context: ContainerContext) -> str:
    """Return the container's workingDir; below a mount that the container finds by a variable, in the volume's folder.

    Of mounts in each other, the deepest mount decides.
    """
    written = container.get("workingDir") or ""
    wanted = posixpath.normpath(written) if written else ""
    mounts = pod_requirements.mounts_by_variable(container).values()
    for mount in sorted(mounts, key=lambda mount: len(mount["mountPath"]), reverse=True):
        where = posixpath.normpath(mount["mountPath"])
        if f"{wanted}/".startswith(f"{where}/"):
            return posixpath.join(_folder(mount, context), wanted[len(where) :].lstrip("/")).rstrip("/")
    return written


def _value(
    entry: Mapping[str, Any],
    pod: LocalPod,
    container: Mapping[str, Any],
    context: ContainerContext,
    before: Mapping[str, str],
) -> str | None:
    """Return the value of a variable; None if the variable is optional and its source is missing."""
    source = entry.get("valueFrom") or {}
    if "fieldRef" in source:
        return _field(source["fieldRef"]["fieldPath"], pod)
    if "resourceFieldRef" in source:
        return _resource(source["resourceFieldRef"], pod, container, context)
    if config_sources.refers(entry):
        return config_sources.value(entry, pod.namespace, context.objects)
    return expand(entry.get("value") or "", before)


def _field(path: str, pod: LocalPod) -> str:
    text = downward.field(path, pod.manifest["metadata"])
    if text is not None:
        return text
    fields = {"spec.nodeName": pod.node, "spec.serviceAccountName": pod.spec.get("serviceAccountName", "default")}
    return str(fields.get(path, ADDRESS))


def _resource(
    reference: Mapping[str, Any], pod: LocalPod, container: Mapping[str, Any], context: ContainerContext
) -> str:
    """Return a limit or request in units of the divisor, rounded up; for a limit that is not set, the node's amount."""
    container_name = reference.get("containerName")
    target = next((other for other in pod.containers if other["name"] == container_name), container)
    kind, _, name = reference["resource"].partition(".")
    if kind == "requests":
        amount = demand.requests(target).get(name, 0)
    else:
        limits = demand.read_resources((target.get("resources") or {}).get("limits"))
        amount = limits.get(name, context.allocatable.get(name, 0))
    divisor = quantities.exact(reference.get("divisor") or 1) or 1
    value = quantities.exact(amount) / divisor / (1000 if name == "cpu" else 1)
    return str(-(-value.numerator // value.denominator))
