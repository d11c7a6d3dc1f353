"""What is recorded of the model of a job that has succeeded.

One rule: pure. A job makes one ModelVersion, and only when it succeeds. A model that cannot be recorded never keeps a
job from its success: an Event says why.
"""

from crds import labels, model_version
from crds.model_version import ModelVersionSpec, ModelVersionStatus
from crds.torchjob.status import TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from crds.trained_models import ModelFiles
from reconcilers.pods import container_files, model_folders
from reconcilers.values import Action, EmitEvent, RecordModel
from reconcilers.views import containers

NOT_RECORDED, EMPTY = "ModelNotRecorded", "ModelEmpty"
"""The reasons of Events about a model without a ModelVersion."""


def is_due(job: TorchJob, after: TorchJobStatus) -> bool:
    """Return whether the job makes a ModelVersion when it gets this status."""
    return job.spec.model_output is not None and after.phase == "Succeeded"


def record(job: TorchJob, after: TorchJobStatus, files: ModelFiles | None, *, on_machine: bool) -> tuple[Action, ...]:
    """Return the actions that record the model of a job before it gets a status; nothing if no record is due.

    `files` is the count of its folder; None if nobody has counted. An empty folder is no model: the usual mistake is
    another path. `on_machine` is that of `model_folders.has_place`.
    """
    output = job.spec.model_output
    if output is None or not is_due(job, after):
        return ()
    if not model_folders.has_place(job, on_machine=on_machine):
        lost = "its files ended with the pods, because spec.outputs names no claim"
        return (EmitEvent(NOT_RECORDED, f"model {output.model_name} has no ModelVersion: {lost}", warning=True),)
    if files is not None and files.files == 0:
        empty = f"the folder of {model_folders.VARIABLE} is empty: the job must write the model there"
        return (EmitEvent(EMPTY, f"model {output.model_name} has no ModelVersion: {empty}", warning=True),)
    spec = ModelVersionSpec(
        model_name=output.model_name,
        created_by=job.metadata.name,
        created_by_uid=job.metadata.uid,
        queue=job.admission.queue if job.admission is not None else job.queue,
        claim_name=job.spec.outputs.claim_name if job.spec.outputs is not None else None,
        path=model_folders.path(job),
        code=job.metadata.labels.get(labels.CODE, ""),
        image=_image(job)[: model_version.LONGEST_NOTE],
        nodes=_pods(job),
    )
    count = ModelVersionStatus() if files is None else ModelVersionStatus.model_validate(files.model_dump())
    end = {"result": after.result, "finish_time": after.completion_time}
    return (RecordModel(spec, count.model_copy(update=end)),)


def _image(job: TorchJob) -> str:
    """Return the image of the container that trains: of the task with rank 0."""
    task = next(iter(job.spec.tasks.values()))
    return str(containers.main(task.template["spec"]).get("image") or "")


def _pods(job: TorchJob) -> int:
    """Return the number of pods that train together, each of which could write to the folder."""
    tasks = job.spec.tasks.items()
    return sum(task.num_tasks for name, task in tasks if not (task.auxiliary or container_files.is_store(job, name)))
