"""The TorchJob of a run.

One rule: the same manifest runs on one machine and on Kubernetes: volumes are found by variables with the paths
of the volumes, which the embedded node replaces by its own paths.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coordinator.code.stores import CODE_PATH, CODE_VOLUME, Mount, Mounts
from coordinator.runs import variables
from coordinator.runs.request import RunRequest, RunRole
from crds import labels
from crds.api_resources import TORCHJOBS
from crds.torchjob.tasks import WORKER
from kube.api import Manifest

CONTAINER = "torch"
UNPACKER = "torchq-code"
"""The init container that unpacks the code."""
CLIENT_FOLDER = ".torchq"
"""The folder of the code with the package `torchq`, which comes last on the path of Python."""
GPU = "nvidia.com/gpu"
_TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_CODE = Mount({"name": CODE_VOLUME, "emptyDir": {}}, CODE_PATH, read_only=False)


@dataclass(frozen=True, slots=True)
class RunCode:
    """The code of a run, as its pods get it."""

    digest: str
    source: Mounts
    script: str
    """The program that unpacks it."""


def build(
    request: RunRequest, name: str, code: RunCode | None, python_folder: str, models: Sequence[Manifest] = ()
) -> Manifest:
    """Return the TorchJob, which reads `models`. Without code, the containers of the run are executed in the folder
    itself, on an embedded node.
    """
    annotations = {labels.PYTHON_FOLDER: python_folder} if python_folder else {}
    if code is None:
        annotations[labels.SUBMIT_DIRECTORY] = request.folder
    metadata: dict[str, Any] = {"name": name, "namespace": request.namespace}
    if all_labels := {**request.labels, **({labels.CODE: code.digest[:16]} if code is not None else {})}:
        metadata["labels"] = all_labels
    if annotations:
        metadata["annotations"] = annotations
    tasks = {task: _task(role, request, code) for task, role in request.roles.items()}
    spec = {"torchTaskSpecs": tasks, **_options(request), **({"modelInputs": [*models]} if models else {})}
    return TORCHJOBS.manifest(metadata, spec=spec)


def _options(request: RunRequest) -> dict[str, Any]:
    """Return the other fields of the spec, without those that have their defaults."""
    fields = {
        "schedulingPolicy": _scheduling_policy(request) or None,
        "torchElasticPolicy": _elastic_policy(request) or None,
        "outputs": {"claimName": request.outputs} if request.outputs else None,
        "modelOutput": {"modelName": request.model} if request.model else None,
        "ttlSecondsAfterFinished": request.ttl_seconds,
        "successPolicy": request.success if request.success != "AllTasks" else None,
        "backoffLimit": request.retries,
        "activeDeadlineSeconds": request.time,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _scheduling_policy(request: RunRequest) -> dict[str, Any]:
    fields = {"queue": request.queue, "priority": request.priority, "checkpointSeconds": request.checkpoint_seconds}
    return {name: value for name, value in fields.items() if value}


def _elastic_policy(request: RunRequest) -> dict[str, Any]:
    """Return the bounds of the workers. Those of torchrun agree on their number at the job's store; other programs get
    their ranks when they start, so they are restarted in place."""
    worker = request.roles.get(WORKER)
    if worker is None or worker.bounds is None:
        return {}
    least, most = worker.bounds
    return {
        "numMinReplicas": least,
        "numMaxReplicas": most,
        **({} if _is_torchrun(worker.command) else {"mode": "InPlaceRestart"}),
        **({"autoscale": "Idle"} if request.autoscale else {}),
    }


def _is_torchrun(command: Sequence[str]) -> bool:
    return any(word.rpartition("/")[2] == "torchrun" or word in _TORCHRUN_MODULES for word in command)


def _task(role: RunRole, request: RunRequest, code: RunCode | None) -> Manifest:
    main = _main(role, role.image or request.image, code)
    pod: dict[str, Any] = {"containers": [main]}
    if code is not None:
        mounts = (_CODE, *code.source)
        pod = {
            "initContainers": [_unpacker(main, code)],
            "containers": [main],
            "volumes": [mount.volume for mount in mounts],
        }
    if request.grace is not None:
        pod["terminationGracePeriodSeconds"] = request.grace
    # The same failure means the same in every pod, whatever its task: the defaults of the tasks differ.
    policy = "ExitCode" if request.retries is None else "OnFailure"
    task: dict[str, Any] = {"numTasks": role.nodes, "restartPolicy": policy, "template": {"spec": pod}}
    if role.after is not None:
        task["dependsOn"] = [{"taskType": role.after.role, "phase": role.after.phase}]
    return task


def _main(role: RunRole, image: str, code: RunCode | None) -> Manifest:
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": image,
        "command": [variables.literal(word) for word in role.command],
    }
    mounts = (_CODE,) if code is not None else ()
    env = [*_volume_variables(mounts), *_role_variables(role, has_code=code is not None)]
    if code is not None:
        container |= {"workingDir": CODE_PATH, "volumeMounts": _volume_mounts(mounts)}
    if env:
        container["env"] = env
    if resources := _resources(role):
        container["resources"] = resources
    return container


def _unpacker(main: Mapping[str, Any], code: RunCode) -> Manifest:
    """Return the container that unpacks the code. The init container requests the cpu and memory of the main container,
    so that the charge of the pod is that of the main container.
    """
    mounts = (_CODE, *code.source)
    container = {
        "name": UNPACKER,
        "image": main["image"],
        "command": ["python3", "-c", code.script, code.digest],
        "env": _volume_variables(mounts),
        "volumeMounts": _volume_mounts(mounts),
    }
    resources = {
        kind: {name: amount for name, amount in amounts.items() if name != GPU}
        for kind, amounts in main.get("resources", {}).items()
    }
    if resources := {kind: amounts for kind, amounts in resources.items() if amounts}:
        container["resources"] = resources
    return container


def _role_variables(role: RunRole, *, has_code: bool) -> Iterator[Manifest]:
    python_path = role.env.get("PYTHONPATH", "")
    for name, value in role.env.items():
        if not (has_code and name == "PYTHONPATH"):
            yield {"name": name, "value": variables.literal(value)}
    if has_code:
        client = f"$({_volume_variable(CODE_VOLUME)})/{CLIENT_FOLDER}"
        before = f"{variables.literal(python_path)}:" if python_path else ""
        yield {"name": "PYTHONPATH", "value": before + client}
    for name, (secret, key) in role.secret_env.items():
        yield {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def _volume_variables(mounts: Sequence[Mount]) -> list[Manifest]:
    return [{"name": _volume_variable(mount.name), "value": mount.path} for mount in mounts]


def _volume_variable(volume: str) -> str:
    """Return the variable by which a container finds a volume on the embedded node, too."""
    return "TORCHQ_VOLUME_" + volume.upper().replace("-", "_")


def _volume_mounts(mounts: Sequence[Mount]) -> list[Manifest]:
    return [
        {"name": mount.name, "mountPath": mount.path, **({"readOnly": True} if mount.read_only else {})}
        for mount in mounts
    ]


def _resources(role: RunRole) -> dict[str, dict[str, str]]:
    """Return requests and limits: memory is limited, since a pod that takes more harms others; CPUs are not."""
    requests, limits = {}, {}
    if role.cpus is not None:
        requests["cpu"] = role.cpus
    if role.memory is not None:
        requests["memory"] = limits["memory"] = role.memory
    if role.gpus:
        limits[GPU] = str(role.gpus)
    return {kind: amounts for kind, amounts in (("requests", requests), ("limits", limits)) if amounts}


def with_source(job: Manifest, source: Mounts) -> Manifest:
    """Return a run's TorchJob with other volumes for its code."""
    volumes = {mount.name: mount.volume for mount in source}
    tasks = {name: _with_volumes(task, volumes) for name, task in job["spec"]["torchTaskSpecs"].items()}
    return {**job, "spec": {**job["spec"], "torchTaskSpecs": tasks}}


def _with_volumes(task: Manifest, volumes: Mapping[str, Manifest]) -> Manifest:
    template = task["template"]
    replaced = [volumes.get(volume["name"], volume) for volume in template["spec"].get("volumes") or ()]
    return {**task, "template": {**template, "spec": {**template["spec"], "volumes": replaced}}}
