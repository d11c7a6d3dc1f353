"""How far a job has come: which of its stages have begun, and which of its tasks may start.

One rule: pure. What has begun stays begun, over restarts too: the status says so, since the pods that proved it may be
gone. A success that a stage has begun upon is never asked for again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from crds.torchjob.stages import Stage
from crds.torchjob.tasks import Dependency
from crds.torchjob.torchjob import TorchJob
from gang.members import Members
from reconcilers.plan import status
from reconcilers.pods import task_members
from reconcilers.views.pod_view import PodView


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One job at one moment."""

    members: Mapping[str, Members]
    """Its tasks, counted."""
    begun: tuple[Stage, ...]
    """The stages that have begun, those that begin now included."""
    passed: frozenset[str]
    """The tasks that a stage which has begun had waited for. None of their pods is made again."""
    started: frozenset[str]
    """The tasks of begun stages whose upstreams have come so far, now or at any time since the last restart."""

    def enough(self, task_type: str) -> bool:
        """Whether a task runs as far as others need it, or has succeeded."""
        return task_type in self.passed or self.members[task_type].enough

    def done(self, task_type: str) -> bool:
        """Whether a task has succeeded."""
        return task_type in self.passed or self.members[task_type].done


def written(job: TorchJob) -> tuple[Stage, ...]:
    """The stages that the status knows to have begun, and the first one."""
    return tuple(each for each in job.spec.stages if not each.awaits or str(each.index) in job.status.stages)


def behind(job: TorchJob) -> frozenset[str]:
    """The tasks, in lower case, whose success the status knows: nothing that becomes of their pods matters any more."""
    return frozenset(each.lower() for each in _awaited(written(job)))


def of(job: TorchJob, pods: Iterable[PodView]) -> Progress:
    """How far a job has come by the pods of its admission, since its last restart."""
    current = [pod for pod in pods if not outdated(job, pod)]
    counts = status.count(job, current)
    members = {each: task_members.counted(job.spec, counts, each) for each in job.spec.tasks}
    begun = _begun(job, members)
    found = Progress(members=members, begun=begun, passed=_awaited(begun), started=frozenset())
    return replace(found, started=_started(job, found, current))


def _begun(job: TorchJob, members: Mapping[str, Members]) -> tuple[Stage, ...]:
    """The stages that have begun before, and those for which everything is done now."""
    before = written(job)
    done = _awaited(before) | {each for each, task in members.items() if task.done}
    return tuple(each for each in job.spec.stages if each in before or each.awaits <= done)


def _awaited(stages: Iterable[Stage]) -> frozenset[str]:
    return frozenset[str]().union(*(each.awaits for each in stages))


def _started(job: TorchJob, progress: Progress, current: Iterable[PodView]) -> frozenset[str]:
    """The tasks that are beyond their gate, and those whose gate may open. A pod that was restarted in place with the
    whole job proves nothing: it did not wait for anybody."""
    whole = str(job.status.restart_generation)
    seen = {pod.task for pod in current if not pod.gated and pod.asked != whole}
    present = (each for stage in progress.begun for each in stage.tasks)
    return frozenset(
        each for each in present if each.lower() in seen or _counted(job, each) or _open(job, progress, each)
    )


def outdated(job: TorchJob, pod: PodView) -> bool:
    """Whether a pod is of a time before the job's last restart."""
    return pod.restart != job.status.restart_generation


def _counted(job: TorchJob, task_type: str) -> bool:
    """Whether the status remembers pods of a task beyond their gate: a pod that waits is neither ready nor done."""
    count = job.status.task_statuses.get(task_type)
    return count is not None and count.ready + count.succeeded > 0


def _open(job: TorchJob, progress: Progress, task_type: str) -> bool:
    """Whether everything a task depends on has come so far. What failed never has."""
    return all(_reached(progress, each) for each in job.spec.tasks[task_type].depends_on)


def _reached(progress: Progress, upstream: Dependency) -> bool:
    succeeded = upstream.phase == "Succeeded"
    return progress.done(upstream.task_type) if succeeded else progress.enough(upstream.task_type)


def running(job: TorchJob, progress: Progress, stages: Iterable[Stage]) -> bool:
    """Whether the tasks of some stages run as far as they must; auxiliary ones count where there are no others."""
    present = [each for stage in stages for each in stage.tasks]
    return all(progress.enough(each) for each in task_members.training(job.spec, present) or present)
