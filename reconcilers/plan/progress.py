"""The progress of a job: which of its stages have begun, and which of its tasks may start.

One rule: pure. A stage that has begun stays begun, over restarts too: the status records it, because the pods that
proved it may no longer exist. A success that let a stage begin is never required again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from crds.torchjob.stages import Stage
from crds.torchjob.tasks import RENDEZVOUS, Dependency
from crds.torchjob.torchjob import TorchJob
from gang.values import TaskMembers
from reconcilers.plan import rendezvous, status
from reconcilers.plan.in_place import interruptions
from reconcilers.pods import task_members
from reconcilers.views.pod_view import PodView


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """The progress of one job at one moment."""

    members: Mapping[str, TaskMembers]
    """The counts of each task."""
    begun: tuple[Stage, ...]
    """The stages that have begun, including those that begin now."""
    passed: frozenset[str]
    """The completed tasks: a begun stage waited for them, or for all tasks that met at the rendezvous store. None of
    their pods is created again."""
    started: frozenset[str]
    """The tasks of begun stages whose upstream tasks have progressed far enough at any time since the last restart."""
    closed: frozenset[str] = frozenset()
    """The tasks whose pods can no longer join the others, because one of these has succeeded. None is created again,
    and those that have not joined are not needed."""

    def enough(self, task_type: str) -> bool:
        """Return whether a task runs as far as other tasks need it, or has succeeded."""
        return task_type in self.passed or self.members[task_type].enough

    def done(self, task_type: str) -> bool:
        """Return whether a task has succeeded."""
        return task_type in self.passed or self.members[task_type].done


def begun_stages(job: TorchJob) -> tuple[Stage, ...]:
    """Return the first stage, and the stages that have begun according to the status."""
    return tuple(stage for stage in job.spec.stages if not stage.awaits or str(stage.index) in job.status.stages)


def has_begun(job: TorchJob, task_type: str) -> bool:
    """Return whether the stage of a task has begun according to the status; before the beginning its pods are not
    expected.
    """
    return any(task_type in stage.tasks for stage in begun_stages(job))


def completed_tasks(job: TorchJob) -> frozenset[str]:
    """Return the tasks, in lower case, that have succeeded according to the status: their pods no longer matter."""
    return frozenset(task_type.lower() for task_type in _passed_tasks(job, begun_stages(job)))


def assess(job: TorchJob, pods: Iterable[PodView]) -> JobProgress:
    """Return the progress of a job by the pods of its admission, since its last restart."""
    current = [pod for pod in pods if not is_outdated(job, pod)]
    counts = status.count_pods(job, current)
    members = {task_type: task_members.count_members(job.spec, counts, task_type) for task_type in job.spec.tasks}
    closed = task_members.meeting_tasks(job.spec) if rendezvous.has_succeeded(job, current) else frozenset[str]()
    if task_members.needs_all_tasks(job):
        members = {task_type: _begun_members(job, task, task_type, current) for task_type, task in members.items()}
    members |= {task_type: _joined_members(members[task_type], task_type, current) for task_type in closed}
    before = begun_stages(job)
    done = _upstream_tasks(before) | {task_type for task_type, task in members.items() if task.done}
    begun = tuple(stage for stage in job.spec.stages if stage in before or stage.awaits <= done)
    passed = _passed_tasks(job, begun)
    result = JobProgress(members=members, begun=begun, passed=passed, started=frozenset(), closed=closed)
    return replace(result, started=_startable_tasks(job, result, current))


def _begun_members(job: TorchJob, task: TaskMembers, task_type: str, current: Iterable[PodView]) -> TaskMembers:
    """Return the counts of a task of which the begun pods are needed, or its minimum of pods if this is larger.

    A pod that is missing although all pods of the task existed may have begun, too.
    """
    own = [pod for pod in current if pod.task == task_type.lower()]
    was_whole = status.is_whole(job, task_type, job.status.task_statuses.get(task_type))
    missing = task.wanted - len(own) if was_whole and job.status.phase == "Running" else 0
    begun = sum(pod.phase != "Pending" and not pod.gated for pod in own) + missing
    return replace(task, wanted=min(task.wanted, max(task.minimum, begun)))


def _joined_members(task: TaskMembers, task_type: str, current: Iterable[PodView]) -> TaskMembers:
    """Return the counts of a task of which only those pods are needed that have joined the others."""
    joined = sum(pod.task == task_type.lower() and rendezvous.has_joined(pod) for pod in current)
    return replace(task, wanted=min(task.wanted, joined))


def _passed_tasks(job: TorchJob, begun: Iterable[Stage]) -> frozenset[str]:
    """Return the tasks that begun stages waited for. A rendezvous store is of no use once all tasks that met there are
    among these tasks, and the next stage may need its address."""
    passed, meeting = _upstream_tasks(begun), task_members.meeting_tasks(job.spec)
    return passed | {RENDEZVOUS} if meeting and meeting <= passed else passed


def _upstream_tasks(stages: Iterable[Stage]) -> frozenset[str]:
    return frozenset[str]().union(*(stage.awaits for stage in stages))


def _startable_tasks(job: TorchJob, progress: JobProgress, current: Iterable[PodView]) -> frozenset[str]:
    """Return the tasks that have passed their gate, and those whose gate may open.

    A pod that was restarted in place with the whole job proves nothing, because it waited for no other pod.
    """
    whole = str(job.status.restart_generation)
    past_gate = {pod.task for pod in current if not pod.gated and interruptions.purpose(pod) != whole}
    present = (task_type for stage in progress.begun for task_type in stage.tasks)
    return frozenset(
        task_type
        for task_type in present
        if task_type.lower() in past_gate or _has_status_counts(job, task_type) or _may_start(job, progress, task_type)
    )


def is_outdated(job: TorchJob, pod: PodView) -> bool:
    """Return whether a pod is from before the job's last restart."""
    return pod.restart != job.status.restart_generation


def _has_status_counts(job: TorchJob, task_type: str) -> bool:
    """Return whether the status counts pods of a task beyond their gate: a waiting pod is neither ready nor
    succeeded."""
    count = job.status.task_statuses.get(task_type)
    return count is not None and count.ready + count.succeeded > 0


def _may_start(job: TorchJob, progress: JobProgress, task_type: str) -> bool:
    """Return whether all upstream tasks have progressed far enough. A failed task never has progressed far enough."""
    return all(_has_reached(progress, dependency) for dependency in job.spec.tasks[task_type].depends_on)


def _has_reached(progress: JobProgress, upstream: Dependency) -> bool:
    succeeded = upstream.phase == "Succeeded"
    return progress.done(upstream.task_type) if succeeded else progress.enough(upstream.task_type)


def all_running(job: TorchJob, progress: JobProgress, stages: Iterable[Stage]) -> bool:
    """Return whether the tasks of some stages run as far as required; auxiliary tasks count only if there are no
    other tasks."""
    present = [task_type for stage in stages for task_type in stage.tasks]
    return all(progress.enough(task_type) for task_type in task_members.training_tasks(job.spec, present) or present)
