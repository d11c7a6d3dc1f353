"""What keeps a job from running, in a sentence for its owner.

One rule: pure, over what nodes and schedulers say just now. It is said once, when they are about to lose the pods: its
numbers may be moving ones.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from crds.torchjob.torchjob import TorchJob
from gang.values import GroupView
from reconcilers.plan import progress
from reconcilers.views.pod_view import PodView

MOST = 3
"""Tasks and groups that are named."""


def of(job: TorchJob, pods: Iterable[PodView], groups: Iterable[GroupView]) -> str:
    """The tasks that have too few pods that run, each with its commonest trouble; then what the groups wait for. Empty
    if nobody says anything."""
    there = [pod for pod in pods if not pod.deleting]
    found = progress.of(job, there)
    short = (each for stage in found.begun for each in stage.tasks if not found.enough(each))
    waits = (each for each in groups if each.phase != "Ready" and not each.deleting and each.message)
    said = [sentence for each in short for sentence in _of_task(each, there)]
    said += [f"{each.resource.kind} {each.name}: {each.message}" for each in waits]
    return "; ".join(said[:MOST])


def _of_task(task_type: str, pods: Iterable[PodView]) -> Iterator[str]:
    """Its commonest trouble, with the first pod that has it."""
    mine = (pod for pod in pods if pod.task == task_type.lower())
    ailing = [pod for pod in mine if not (pod.running or pod.finished)]
    if ailing:
        reason, count = Counter(map(_reason, ailing)).most_common(1)[0]
        example = next(pod for pod in ailing if _reason(pod) == reason)
        message = example.ailment.removeprefix(reason)
        yield f"{task_type}: {count} {reason} ({example.name}){message}"


def _reason(pod: PodView) -> str:
    return pod.ailment.partition(": ")[0] or pod.phase
