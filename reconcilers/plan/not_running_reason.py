"""The reason why a job does not run, as a message for its owner.

One rule: pure, over the current reports of nodes and schedulers. The message is built once, when the pods are about to
be deleted: its numbers may change at any time.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from crds.torchjob.torchjob import TorchJob
from gang.values import GroupView
from reconcilers.plan import progress
from reconcilers.views.pod_view import PodView

MOST = 3
"""The number of tasks and groups that the message names."""


def describe(job: TorchJob, pods: Iterable[PodView], groups: Iterable[GroupView]) -> str:
    """Return a message with the tasks that have too few running pods, each with its most common problem.

    What the groups wait for follows. The message is empty if there is no report.
    """
    existing = [pod for pod in pods if not pod.deleting]
    job_progress = progress.assess(job, existing)
    short = (
        task_type for stage in job_progress.begun for task_type in stage.tasks if not job_progress.enough(task_type)
    )
    waits = (group for group in groups if group.phase != "Ready" and not group.deleting and group.message)
    reasons = [sentence for task_type in short for sentence in _describe_task(task_type, existing)]
    reasons += [f"{group.resource.kind} {group.name}: {group.message}" for group in waits]
    return "; ".join(reasons[:MOST])


def _describe_task(task_type: str, pods: Iterable[PodView]) -> Iterator[str]:
    """Yield the most common problem of a task's pods, with the first pod that has it."""
    task_pods = (pod for pod in pods if pod.task == task_type.lower())
    troubled = [pod for pod in task_pods if not (pod.running or pod.finished)]
    if troubled:
        reason, count = Counter(map(_reason, troubled)).most_common(1)[0]
        example = next(pod for pod in troubled if _reason(pod) == reason)
        message = example.problem.removeprefix(reason)
        yield f"{task_type}: {count} {reason} ({example.name}){message}"


def _reason(pod: PodView) -> str:
    return pod.problem.partition(": ")[0] or pod.phase
