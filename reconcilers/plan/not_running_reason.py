"""The reason why a job does not run, as a message for its owner.

One rule: pure, over the current reports of nodes and schedulers. The numbers of the message may change at any time, so
it is not written each time it changes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from crds.torchjob.torchjob import TorchJob
from gang.values import GroupView
from reconcilers.plan import progress
from reconcilers.views import pod_problems
from reconcilers.views.pod_view import PodView

MOST = 3
"""The number of tasks and groups that the message names."""


def describe(job: TorchJob, pods: Iterable[PodView], groups: Iterable[GroupView]) -> str:
    """Return a message about the tasks that have too few running pods, and the groups; empty if there is no report."""
    existing = [pod for pod in pods if not pod.deleting]
    job_progress = progress.assess(job, existing)
    enough = {task_type.lower() for task_type in job_progress.members if job_progress.enough(task_type)}
    return summarize(job, [pod for pod in existing if pod.task not in enough], groups)


def summarize(job: TorchJob, pods: Sequence[PodView], groups: Iterable[GroupView]) -> str:
    """Return a message with the most telling problem of each task's pods, then the reasons for which groups wait, the
    most telling first. Pods and groups that only wait for others are left out where there is a cause.
    """
    found = [problem for task_type in job.spec.tasks for problem in _find_problem(task_type, pods)]
    for group in groups:
        if group.message and not group.deleting:
            place = pod_problems.place(pod_problems.UNSCHEDULABLE, group.message)
            found.append((place, f"{group.resource.kind} {group.name}: {group.message}"))
    found.sort(key=lambda problem: problem[0])
    causes = [text for place, text in found if place < pod_problems.WAITS_FOR_OTHERS]
    message = "; ".join((causes or [text for _, text in found])[:MOST])
    domain = job.admission.domain if job.admission is not None else ""
    is_bound_to_it = domain and message and any(not pod.node for pod in pods)
    return f"{message}; {bound_to(domain)}" if is_bound_to_it else message


def bound_to(domain: str) -> str:
    """Return the clause about a job that has a domain (`Admission.domain`)."""
    return f"all pods of the job must run on nodes with {domain}"


def _find_problem(task_type: str, pods: Iterable[PodView]) -> Iterator[tuple[int, str]]:
    """Yield the place and the text of the most telling problem of a task's pods, among equal problems the most common,
    with the first pod that has it.
    """
    task_pods = (pod for pod in pods if pod.task == task_type.lower())
    troubled = [pod for pod in task_pods if not (pod.running or pod.finished)]
    if troubled:
        counts = Counter((place_of(pod), _reason(pod)) for pod in troubled)
        place, reason = min(counts, key=lambda each: (each[0], -counts[each]))
        example = next(pod for pod in troubled if (place_of(pod), _reason(pod)) == (place, reason))
        message = example.problem.removeprefix(reason)
        yield place, f"{task_type}: {counts[place, reason]} {reason} ({example.name}){message}"


def place_of(pod: PodView) -> int:
    """Return the place of a pod's problem among the problems of the job, the most telling first."""
    return pod_problems.place(_reason(pod), pod.problem)


def _reason(pod: PodView) -> str:
    return pod.problem.partition(": ")[0] or pod.phase
