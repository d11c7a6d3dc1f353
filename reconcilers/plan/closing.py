"""The tasks whose worlds are about to end, because one of their pods has succeeded.

One rule: pure, over the pods since the job's last restart. No new pod can take the place of a pod of such a task: its
peers are gone. So if it is lost, all pods of the job are restarted, whatever `restartScope` says, and a later stage
waits for them again.
"""

from collections.abc import Iterable, Mapping

from crds.torchjob.status import StageStatus
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import rendezvous
from reconcilers.pods import task_members
from reconcilers.views.pod_view import PodView


def find_tasks(job: TorchJob, pods: Iterable[PodView]) -> frozenset[str]:
    """Return those of the tasks that decide the success of the job whose pods have no successors any more, in lower
    case."""
    current = [pod for pod in pods if pod.restart == job.status.restart_generation]
    succeeded = {pod.task for pod in current if pod.phase == "Succeeded"}
    if not succeeded:
        return frozenset()
    decisive = task_members.decisive_tasks(job)
    meeting = decisive & task_members.meeting_tasks(job.spec)
    closing = set(meeting if rendezvous.has_succeeded(job, current) else ())
    if task_members.needs_all_tasks(job):
        for stage in job.spec.stages:
            world = decisive.intersection(task_members.training_tasks(job.spec, stage.tasks)) - meeting
            closing |= world if any(task_type.lower() in succeeded for task_type in world) else set()
    return frozenset(task_type.lower() for task_type in closing)


def stages_after_restart(job: TorchJob) -> Mapping[str, StageStatus]:
    """Return the stages that stay begun when all pods of a job are restarted.

    A stage begins anew if it waited for a task whose world is not over: the others of this world need the task again.
    """
    begun = dict(job.status.stages)
    while task_members.needs_all_tasks(job):
        awaited = {str(stage.index): stage.awaits for stage in job.spec.stages if str(stage.index) in begun}
        over = frozenset[str]().union(*awaited.values())
        needed = {name for name in over if not _world_of(job, name) <= over}
        kept = {index: begun[index] for index in begun if needed.isdisjoint(awaited.get(index, ()))}
        if kept == begun:
            break
        begun = kept
    return begun


def _world_of(job: TorchJob, task_type: str) -> frozenset[str]:
    """Return the tasks of the world of a task that decide the success of the job."""
    stage = next(stage for stage in job.spec.stages if task_type in stage.tasks)
    world = frozenset(task_members.training_tasks(job.spec, stage.tasks))
    return world & task_members.decisive_tasks(job) if task_type in world else frozenset()
