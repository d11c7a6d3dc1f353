"""The folders of models in containers: the one that the job writes, and those that it reads.

One rule: pure, over fresh copies of templates. The folder of the job's own model is in its folder of outputs, so it has
no volume of its own. A volume or mount of a template in the same place stays as it is.
"""

from collections.abc import Iterator
from typing import Any

from crds.torchjob.torchjob import TorchJob
from crds.trained_models import ModelInput
from reconcilers.pods import container_files
from reconcilers.pods.environment import Variables
from reconcilers.views import containers

VARIABLE = "TORCHQ_MODEL_PATH"
ANCESTORS = ("TORCH_ON_K8S_MODEL_PATH", "KUBEDL_MODEL_PATH")
"""The names of the variable in torch-on-k8s and KubeDL."""
FOLDER = "model"
"""The name of the folder of the model in the folder of the outputs."""
INPUTS = "/torchq/models"
INPUT_VARIABLE = "TORCHQ_MODEL_INPUT_"
"""The beginning of the name of each variable with the folder of a model that the job reads."""
INPUT_VOLUME = "torchq-models-"
"""The beginning of the names of volumes with models that the job reads."""
NO_CLAIM = "torchq-models"
"""Stands for the claim of models on the machine of an embedded cluster, which has no claims."""


def path(job: TorchJob) -> str:
    """Return the folder of the job's model among the folders of all jobs."""
    return f"{container_files.job_folder(job)}/{FOLDER}"


def has_place(job: TorchJob, *, on_machine: bool) -> bool:
    """Return whether the files of the job's model outlive its pods. `on_machine`: the pods run on the machine of an
    embedded cluster, which keeps the outputs of every job."""
    return job.spec.outputs is not None or on_machine


def output_variables(job: TorchJob, task_type: str, *, on_machine: bool) -> Variables:
    """Return the variables with the folder of the job's model, which stand after the variable of the outputs."""
    is_wanted = job.spec.model_output is not None and not container_files.is_store(job, task_type)
    if not is_wanted or not has_place(job, on_machine=on_machine):
        return {}
    return dict.fromkeys((VARIABLE, *ANCESTORS), f"$({container_files.OUTPUT_VARIABLE})/{FOLDER}")


def add_inputs(job: TorchJob, task_type: str, spec: dict[str, Any]) -> Variables:
    """Add the folders of the models that the job reads to all containers, and return the variables with these
    folders."""
    if not job.spec.model_inputs or container_files.is_store(job, task_type):
        return {}
    found = [(each, _volume(each, spec)) for each in job.spec.model_inputs]
    for container in containers.all_containers(spec):
        mounts = container.get("volumeMounts") or []
        taken = {mount.get("mountPath") for mount in mounts}
        container["volumeMounts"] = [*mounts, *(_mount(*each) for each in found if _place(each[0]) not in taken)]
    return {_variable(each): _place(each) for each in job.spec.model_inputs}


def _volume(model: ModelInput, spec: dict[str, Any]) -> str:
    """Return the name of the volume with a model. A pod has one volume of each claim: kubelets do not mount a claim
    twice."""
    claim = model.claim_name or NO_CLAIM
    name = next(_volumes_of(claim, spec), "")
    if not name:
        volumes = spec.get("volumes") or []
        name = f"{INPUT_VOLUME}{len(volumes)}"
        spec["volumes"] = [*volumes, {"name": name, "persistentVolumeClaim": {"claimName": claim}}]
    return name


def _volumes_of(claim: str, spec: dict[str, Any]) -> Iterator[str]:
    for volume in spec.get("volumes") or ():
        source = volume.get("persistentVolumeClaim") or {}
        is_ours = str(volume["name"]).startswith((INPUT_VOLUME, container_files.OUTPUT_VOLUME))
        if is_ours and source.get("claimName") == claim:
            yield volume["name"]


def _mount(model: ModelInput, volume: str) -> dict[str, Any]:
    return {"name": volume, "mountPath": _place(model), "subPath": model.path, "readOnly": True}


def _place(model: ModelInput) -> str:
    return f"{INPUTS}/{model.model_name}"


def _variable(model: ModelInput) -> str:
    return INPUT_VARIABLE + model.model_name.upper().replace("-", "_")
