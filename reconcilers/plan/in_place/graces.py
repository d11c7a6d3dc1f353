"""What a planned restart owes to containers that an agent restarts: their node gives them two seconds to end.

One rule: pure. After a failure the others have lost what they computed since their last checkpoint, so they are
restarted at once. A planned restart takes nothing from them that a new pod would have left.

    schedulingPolicy.checkpointSeconds   the job is asked to save first, and restarted in place then
    else a grace in the template         new pods, which end the old ones with their grace
    neither                              restarted in place at once
"""

from collections.abc import Iterable

from crds.torchjob.status import TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from reconcilers.views.pod_view import PodView

SECONDS = 2
"""The grace that a kubelet gives in a restart of all containers of a pod, whatever the pod says."""


def must_save(job: TorchJob, pods: Iterable[PodView]) -> bool:
    """Return whether the job is asked to save before some pods are restarted in place."""
    if not job.spec.scheduling_policy.checkpoint_seconds or job.status.phase != "Running":
        return False
    return any(pod.has_restart_agent and pod.running for pod in pods)


def must_replace(job: TorchJob, pods: Iterable[PodView]) -> bool:
    """Return whether a planned restart of some pods replaces them, so that they keep their grace."""
    return not job.spec.scheduling_policy.checkpoint_seconds and have_grace(job, pods)


def have_grace(job: TorchJob, pods: Iterable[PodView]) -> bool:
    """Return whether an agent would restart any of the pods with a shorter grace than its template sets."""
    tasks = {name.lower(): task for name, task in job.spec.torch_task_specs.items()}
    templates = (tasks[pod.task].template["spec"] for pod in pods if pod.has_restart_agent and pod.task in tasks)
    return any((spec.get("terminationGracePeriodSeconds") or 0) > SECONDS for spec in templates)


def keep(job: TorchJob, after: TorchJobStatus, in_place: Iterable[PodView]) -> TorchJobStatus:
    """Return the status after a restart of the whole job that torchq itself has planned at once: its pods are replaced
    where they have a grace. `in_place` are those that could be restarted in place."""
    is_whole = after.restart_generation > job.status.restart_generation
    if not is_whole or not have_grace(job, in_place):
        return after
    return after.model_copy(update={"recreate_generation": after.restart_generation})
