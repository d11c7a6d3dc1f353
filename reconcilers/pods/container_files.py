"""The files of a container that outlive the container: its termination message, and the folder for the files that the
job writes.

One rule: pure, over fresh copies of templates. A field of a template with the same name stays as it is.
"""

from collections.abc import Mapping
from typing import Any

from crds.torchjob.tasks import RENDEZVOUS
from crds.torchjob.torchjob import TorchJob
from reconcilers.views import containers, pod_result

OUTPUT_VOLUME = "torchq-output"
OUTPUT_FOLDER = "/torchq/output"
OUTPUT_VARIABLE = "TORCHQ_OUTPUT"
MESSAGE = "terminationMessagePath"
MESSAGE_PATH = "/dev/termination-log"
"""The default of Kubernetes for the file whose content becomes a container's termination message."""


def set_message(container: dict[str, Any]) -> Mapping[str, str]:
    """Make a container's termination message explicit, and return the variable that names its file."""
    container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    return {pod_result.FILE_VARIABLE: container.setdefault(MESSAGE, MESSAGE_PATH)}


def add_stop_mark(spec: dict[str, Any]) -> None:
    """Let the node append a mark to the termination message of the main container before it asks that container to
    stop, unless the template has a preStop hook of its own.

    The `sh` of the image appends the mark. Without a `sh` the hook fails, which the kubelet reports in an event of the
    pod.
    """
    main = containers.main(spec)
    lifecycle = main.get("lifecycle") or {}
    if not lifecycle.get("preStop"):
        hook = {"exec": {"command": ["sh", "-c", 'printf "\\n%s\\n" "$0" >> "$1"', pod_result.MARK, main[MESSAGE]]}}
        main["lifecycle"] = {**lifecycle, "preStop": hook}


def add_output(job: TorchJob, task_type: str, spec: dict[str, Any]) -> Mapping[str, str]:
    """Add the folder for the job's files to all containers, and return the variable that names it. The claim has
    one folder for each job. A rendezvous store writes nothing."""
    outputs = job.spec.outputs
    if outputs is None or is_store(job, task_type):
        return {}
    if all(volume.get("name") != OUTPUT_VOLUME for volume in spec.get("volumes") or ()):
        claim = {"name": OUTPUT_VOLUME, "persistentVolumeClaim": {"claimName": outputs.claim_name}}
        spec["volumes"] = [*(spec.get("volumes") or ()), claim]
    folder = job_folder(job)
    for container in containers.all_containers(spec):
        mounts = container.get("volumeMounts") or ()
        if all(mount.get("mountPath") != OUTPUT_FOLDER for mount in mounts):
            mount = {"name": OUTPUT_VOLUME, "mountPath": OUTPUT_FOLDER, "subPath": folder}
            container["volumeMounts"] = [*mounts, mount]
    return {OUTPUT_VARIABLE: OUTPUT_FOLDER}


def is_store(job: TorchJob, task_type: str) -> bool:
    """Return whether the pods of a task are the rendezvous store of the job, which trains nothing."""
    return job.spec.rendezvous and task_type == RENDEZVOUS


def job_folder(job: TorchJob) -> str:
    """Return the folder of a job among the folders of all jobs."""
    return f"{job.metadata.namespace}/{job.metadata.name}-{job.metadata.uid}"
