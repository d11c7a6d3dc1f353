"""Files of other systems that users give to `torchq submit`, and where each user finds the way to torchq.

One rule: pure; a file is known by its kind or by its marks, never by its name.
"""

from typing import Any

_PAGE = "docs/coming-from.md"
_KINDS = {
    "PyTorchJob": "Kubeflow's PyTorchJob; a TorchJob has its Master and Worker under spec.torchTaskSpecs",
    "TrainJob": "Kubeflow's TrainJob; a TorchJob has its pods as templates under spec.torchTaskSpecs",
    "MPIJob": "Kubeflow's MPIJob; a TorchJob starts its pods with torchrun instead of mpirun",
    "RayJob": "KubeRay's RayJob; torchq runs torchrun and plain processes",
    "JobSet": "a JobSet; a TorchJob has a task with numTasks for each of its jobs",
    "Job": "a Job of another kind; a TorchJob has its pod template under spec.torchTaskSpecs.Master",
    "ClusterQueue": "Kueue's ClusterQueue; torchq's queue is a TenantQueue: torchq queue create NAME",
    "LocalQueue": "Kueue's LocalQueue; a TenantQueue names its namespaces itself: torchq queue create NAME",
    "Queue": "Volcano's Queue; torchq's queue is a TenantQueue: torchq queue create NAME",
    "TenantQueue": "a TenantQueue, which is no job: torchq queue create NAME, or kubectl apply -f FILE",
}


def advise_on_kind(body: Any) -> str:
    """Return a description of an object of another kind, and what to do with that object; empty for an unknown kind."""
    kind = body.get("kind") if isinstance(body, dict) else None
    known = _KINDS.get(kind, "") if isinstance(kind, str) else ""
    return f"this is {known} ({_PAGE})" if known else ""


def advise_on_text(text: str) -> str:
    """Return a description of a script, and what to do with the script; empty if the text is not known as a script."""
    lines = text.lstrip("\ufeff").splitlines()[:200]
    if any(line.startswith("#SBATCH") for line in lines):
        return (
            f"this is an sbatch script: `torchq run --nodes N --gpus N -- torchrun train.py` submits its command, "
            f"and {_PAGE} has the terms of Slurm"
        )
    if (lines and lines[0].startswith("#!")) or any(line.startswith(("import ", "from ")) for line in lines):
        return "this is a script: `torchq run -- python FILE` runs it; `torchq submit` takes TorchJobs in YAML"
    return ""
