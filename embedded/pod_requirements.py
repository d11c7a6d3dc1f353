"""The parts of a pod's spec that the embedded node does not support.

One rule: pure, and no field is ignored that would change the environment of a program. The node runs a pod as written,
or it refuses the pod with the field and a solution. Isolation (images, users, capabilities, limits) is the exception:
the processes have none here, and all pods share network and IPC of the machine, as `hostNetwork` and `hostIPC` ask.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from crds.resources.amounts import Amounts
from embedded import config_sources, downward
from embedded.pod import INVALID_SPEC_ERRORS, PodFailure
from embedded.status_conditions import well_formed

SHARED_MEMORY = "/dev/shm"
OUTPUT_VOLUME, OUTPUT = "torchq-output", "TORCHQ_OUTPUT"
"""The volume and the variable of the folder of a TorchJob that outlives its pods."""
MODEL_VOLUME, MODELS, MODEL = "torchq-models-", "/torchq/models/", "TORCHQ_MODEL_INPUT_"
"""The beginnings of the names of volumes with models that a TorchJob reads, of the paths of these models, and of the
names of the variables with these paths."""
_SOURCES = ("emptyDir", "hostPath", "downwardAPI", "configMap")
_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.podIP",
    "status.podIPs",
    "status.hostIP",
    "status.hostIPs",
)
_MAPS = ("metadata.labels['", "metadata.annotations['")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle")


SYSTEM_CLASSES = "system-"
"""The beginning of the names of PriorityClasses that only parts of a cluster have."""


OWN_NODE = "is not supported; remove it: the scheduler chooses the node once there is room for the pod and its gang"


def unscheduled(status: Mapping[str, Any]) -> PodFailure | None:
    """Return why a pod of this status cannot run: it has its node not from the scheduler, but from its maker; None if
    the scheduler has bound it.
    """
    if any(each["type"] == "PodScheduled" for each in well_formed(status.get("conditions"))):
        return None
    return PodFailure("NotSupported", f"the embedded node cannot run this pod: spec.nodeName {OWN_NODE}")


def refusal(spec: Mapping[str, Any], demand: Amounts, allocatable: Amounts) -> PodFailure | None:
    """Return why a pod cannot run on a node with these resources; None if the pod can run."""
    lacking = shortages(demand, allocatable)
    if lacking:
        return PodFailure(f"OutOf{lacking[0]}", f"the pod requests more {', '.join(lacking)} than the whole node has")
    problem = next(problems(spec), None)
    return PodFailure("NotSupported", f"the embedded node cannot run this pod: {problem}") if problem else None


def shortages(demand: Amounts, allocatable: Amounts) -> list[str]:
    """Return the resources of which a pod requests more than the whole node has."""
    return sorted(name for name, amount in demand.items() if amount > allocatable.get(name, 0))


def problems(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield every part of a pod's spec that the node does not support; each text begins with the path of its field."""
    try:
        yield from _problems(spec)
    except INVALID_SPEC_ERRORS as error:
        yield f"spec cannot be read: {error}"


def _problems(spec: Mapping[str, Any]) -> Iterator[str]:
    volumes = {volume["name"]: volume for volume in spec.get("volumes") or ()}
    for index, volume in enumerate(spec.get("volumes") or ()):
        yield from _volume_problems(volume, f"spec.volumes[{index}]")
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or ()):
            yield from _container_problems(container, volumes, f"spec.{kind}[{index}]")
    if spec.get("hostPID"):
        yield "spec.hostPID is not supported; remove it: the pod would have a right that nobody checks here"
    if str(spec.get("priorityClassName") or "").startswith(SYSTEM_CLASSES):
        yield f"spec.priorityClassName: {spec['priorityClassName']!r} is for parts of a cluster; name another class"
    if spec.get("ephemeralContainers"):
        yield "spec.ephemeralContainers are not supported"


def _volume_problems(volume: Mapping[str, Any], path: str) -> Iterator[str]:
    sources = [source for source in volume if source != "name" and volume[source] is not None]
    if len(sources) > 1:
        yield f"{path}: a volume has one source only, not {' and '.join(sources)}"
    for source in sources:
        if not isinstance(volume[source], dict):
            yield f"{path}.{source}: must be a map"
    path_on_host = (volume.get("hostPath") or {"path": "/"}).get("path")
    if not isinstance(path_on_host, str) or not path_on_host or "\0" in path_on_host:
        yield f"{path}.hostPath.path: must be a path"
    if isinstance(volume.get("downwardAPI"), dict):
        yield from downward.problems(volume["downwardAPI"], f"{path}.downwardAPI")
    if isinstance(volume.get("configMap"), dict):
        yield from config_sources.volume_problems(volume["configMap"], f"{path}.configMap")
    if sources and sources[0] not in _SOURCES and not is_of_jobs(volume):
        yield f"{path}.{sources[0]}: only {', '.join(_SOURCES[:-1])} and {_SOURCES[-1]} volumes exist here"


def _container_problems(
    container: Mapping[str, Any], volumes: Mapping[str, Mapping[str, Any]], path: str
) -> Iterator[str]:
    if not container.get("command"):
        yield f"{path}.command is required: images are not run here, so there is no entry point to fall back on"
    if container.get("restartPolicy"):
        yield f"{path}.restartPolicy: sidecars and restart policies of single containers are not supported"
    for field in _PROBES:
        if container.get(field):
            yield f"{path}.{field} is not supported; remove it"
    for index, source in enumerate(container.get("envFrom") or ()):
        kind = next((name for name in source if name.endswith("Ref")), "this source")
        yield f"{path}.envFrom[{index}]: {kind} is not supported; write the variables under env"
    for index, entry in enumerate(container.get("env") or ()):
        yield from _variable_problems(entry, f"{path}.env[{index}]")
    mounts = mounts_by_variable(container)
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if mount["name"] not in volumes:
            yield f"{path}.volumeMounts[{index}].name: there is no volume {mount['name']!r}"
        elif not _is_found(mount, mounts, volumes) and not is_satisfied(mount, volumes[mount["name"]]):
            yield _mount_problem(mount, f"{path}.volumeMounts[{index}]")


def _variable_problems(variable: Mapping[str, Any], path: str) -> Iterator[str]:
    source = variable.get("valueFrom") or {}
    for kind in source:
        if kind in config_sources.REFERENCES:
            yield from config_sources.variable_problems(source[kind], f"{path}.valueFrom.{kind}")
        elif kind not in ("fieldRef", "resourceFieldRef"):
            yield f"{path}.valueFrom.{kind} is not supported; give {variable['name']} a value"
    field = (source.get("fieldRef") or {}).get("fieldPath")
    if field and field not in _FIELDS and not field.startswith(_MAPS):
        yield f"{path}.valueFrom.fieldRef.fieldPath: {field!r} is not a field a variable can have"


def _mount_problem(mount: Mapping[str, Any], path: str) -> str:
    name = variable(mount["name"])
    return (
        f"{path}.mountPath: {mount['mountPath']!r} cannot be mounted for a process; use the folder named in the "
        f"variable {name}, and remove the mount or declare {name} with the mount's path as its value"
    )


def mounts_by_variable(container: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the mounts that a container finds by a variable, by the name of that variable.

    Such a container declares the volume's variable with the mount's path as its value. On a cluster that mounts
    volumes the value is right, and here the node replaces it by the path of its own folder.
    """
    declared = {entry["name"]: entry.get("value") for entry in container.get("env") or ()}
    return {
        name: mount
        for mount in container.get("volumeMounts") or ()
        for name in (variable(mount["name"]), *_variables_of_jobs(mount))
        if declared.get(name) == mount["mountPath"]
        and (mount["name"] == OUTPUT_VOLUME or is_model(mount) or not _is_partial(mount))
    }


def _variables_of_jobs(mount: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the variable of a folder of TorchJobs."""
    if is_model(mount):
        return (MODEL + mount["mountPath"].removeprefix(MODELS).upper().replace("-", "_"),)
    return (OUTPUT,) if mount["name"] == OUTPUT_VOLUME else ()


def is_model(mount: Mapping[str, Any]) -> bool:
    """Return whether a mount is the folder of a model that a TorchJob reads."""
    is_ours = str(mount["name"]).startswith((OUTPUT_VOLUME, MODEL_VOLUME))
    return is_ours and str(mount["mountPath"]).startswith(MODELS) and bool(mount.get("subPath"))


def _is_found(
    mount: Mapping[str, Any], mounts: Mapping[str, Mapping[str, Any]], volumes: Mapping[str, Mapping[str, Any]]
) -> bool:
    """Return whether a container finds a mount by a variable. The folder of a claim is the folder of the job, whatever
    part of the claim a cluster would mount.
    """
    return mount in mounts.values() and (not _is_partial(mount) or is_of_jobs(volumes[mount["name"]]))


def _is_partial(mount: Mapping[str, Any]) -> bool:
    return bool(mount.get("subPath") or mount.get("subPathExpr"))


def is_output(volume: Mapping[str, Any]) -> bool:
    """Return whether a volume is the folder of a TorchJob that outlives its pods; its claim need not exist here."""
    return bool(volume.get("name") == OUTPUT_VOLUME and volume.get("persistentVolumeClaim"))


def is_of_jobs(volume: Mapping[str, Any]) -> bool:
    """Return whether a volume has the folder of a TorchJob, or those of models that TorchJobs have trained; its claim
    need not exist here."""
    is_models = str(volume.get("name")).startswith(MODEL_VOLUME) and volume.get("persistentVolumeClaim")
    return bool(is_models) or is_output(volume)


def is_satisfied(mount: Mapping[str, Any], volume: Mapping[str, Any]) -> bool:
    """Return whether the machine already has at the mount's path the content that the mount would put there."""
    where = mount["mountPath"].rstrip("/") or "/"
    if _is_partial(mount):
        return False
    if "hostPath" in volume:
        return bool(where == (volume["hostPath"]["path"].rstrip("/") or "/"))
    return where == SHARED_MEMORY and (volume.get("emptyDir") or {}).get("medium") == "Memory"


def variable(volume: str) -> str:
    """Return the name of the variable that holds the path of a volume's folder."""
    return "TORCHQ_VOLUME_" + volume.upper().replace("-", "_").replace(".", "_")
