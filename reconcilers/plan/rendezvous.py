"""The meaning of a pod's end where pods meet at the rendezvous store of an elastic job.

One rule: pure, over the reports of the pods. Nobody can join a rendezvous that was closed, so the pods then need a new
name for it, which only a restart of all of them gives.

    end of a pod that meets others                     what follows
    its torchrun was killed or told to stop            the others go on without it, and its replacement joins them
    its torchrun lost the store                        the same; it is a disruption, explained by the end of the store
    its torchrun gave up: no restart of its processes  the rendezvous is closed: all pods are restarted
    was left, the others did not come in time, or the
    rendezvous was closed
    it found the rendezvous closed by a success        it came too late: no failure, and it is not needed
    it ended in any other way after a success          all pods are restarted: no other pod can join in its place

    end of the store                                   all pods are restarted: every torchrun ends with the store. It
                                                       is a disruption if a signal from outside ended it
    it has no python or no torch                       the job fails: it would have none next time

Whenever a pod is lost or removed, torchrun restarts the processes of all others, which counts towards `maxRestarts` of
each of them. The loss that would use up the last restart therefore restarts all pods, which begin to count anew.

Also in a world without a store, no new pod can take the place of a pod once another one has succeeded: its peers are
gone. So if such a pod is lost, all pods of the job are restarted, whatever `restartScope` says, and a later stage waits
for them again.
"""

import re
import signal
from collections.abc import Iterable, Mapping

from crds.torchjob.status import StageStatus
from crds.torchjob.tasks import RENDEZVOUS, WORKER
from crds.torchjob.torchjob import TorchJob
from reconcilers.pods import task_members
from reconcilers.views import torchrun
from reconcilers.views.pod_view import PodView

FAILED = "RendezvousFailed"
"""Reason: the image of the rendezvous store has no python or no torch."""
REMEDY = "the rendezvous store needs python with torch: declare a task Rendezvous with an image that has them"
_NO_TORCH = re.compile(r"No module named '?torch\b|cannot import name '?TCPStore\b")
_NO_PYTHON = re.compile(r"executable file not found|no such file or directory|no command specified")
_NOT_STARTED = ("CreateContainerError", "RunContainerError")
"""The problems of containers that their node cannot start; it may be for want of their program."""
_NOT_EXECUTABLE = ("ContainerCannotRun", "StartError")
"""The reasons of containers whose program could not be executed."""
_NO_PROGRAM = (126, 127)
"""The exit codes by which a shell reports that."""


def is_store(job: TorchJob, pod: PodView) -> bool:
    """Return whether a pod is the rendezvous store."""
    return job.spec.rendezvous and pod.task == RENDEZVOUS.lower()


def meets_others(job: TorchJob, pod: PodView) -> bool:
    """Return whether a pod meets others at the rendezvous store."""
    return job.spec.rendezvous and pod.task in {name.lower() for name in task_members.meeting_tasks(job.spec)}


def has_succeeded(job: TorchJob, pods: Iterable[PodView]) -> bool:
    """Return whether a pod of those that meet has succeeded since the last restart, which closes the rendezvous.

    A success before any worker has started does not close the rendezvous: such a program has met no other pod.
    """
    if not job.spec.rendezvous:
        return False
    generation = job.status.restart_generation
    current = [pod for pod in pods if pod.restart == generation and meets_others(job, pod)]
    has_begun = any(pod.task == WORKER.lower() and (pod.phase == "Running" or pod.finished) for pod in current)
    return has_begun and any(pod.phase == "Succeeded" for pod in current)


def is_too_late(pod: PodView) -> bool:
    """Return whether a pod failed because the rendezvous was closed before the pod came."""
    return _has_failed(pod) and torchrun.rendezvous_error(pod.message) == "Closed"


def has_joined(pod: PodView) -> bool:
    """Return whether the success of a job in which a pod has succeeded still depends on this pod."""
    return (pod.phase == "Running" or pod.finished) and not is_too_late(pod)


def lost_store(pod: PodView) -> bool:
    """Return whether a pod failed because its torchrun had lost the store."""
    return _has_failed(pod) and torchrun.rendezvous_error(pod.message) == "Connection"


def _has_failed(pod: PodView) -> bool:
    """Return whether a pod failed, also if its node has started its containers again since."""
    return pod.phase == "Failed" or pod.restarted_by_node


def has_closed(pod: PodView) -> bool:
    """Return whether the torchrun of a failed pod closed the rendezvous, or found it closed."""
    if torchrun.rendezvous_error(pod.message) in ("Closed", "Timeout"):
        return True
    return pod.exit_code == 1 and pod.cause not in (None, 128 + signal.SIGTERM)


def cannot_serve(pod: PodView) -> bool:
    """Return whether the store cannot run because its image has no python or no torch."""
    if not _has_failed(pod) and not pod.problem:
        return False
    if pod.exit_code in _NO_PROGRAM or pod.reason in _NOT_EXECUTABLE or _NO_TORCH.search(pod.message):
        return True
    return pod.problem.startswith(_NOT_STARTED) and bool(_NO_PYTHON.search(pod.problem))


def uses_up_restarts(job: TorchJob, lost: int) -> bool:
    """Return whether the processes of the other pods have no restart left after some pods are lost."""
    policy = job.spec.torch_elastic_policy
    if not job.spec.rendezvous or policy is None or not lost:
        return False
    return job.status.training_restarts + lost >= policy.effective_max_restarts


def has_no_restart_left(job: TorchJob) -> bool:
    """Return whether the processes of the pods have used up their restarts, so that the next loss would end the
    processes.
    """
    policy = job.spec.torch_elastic_policy
    limit = policy.effective_max_restarts if job.spec.rendezvous and policy is not None else 0
    return 0 < limit <= job.status.training_restarts


def why_restarted(job: TorchJob) -> str:
    """Return the sentence with which a restart of all pods is explained by used up restarts of their processes."""
    policy = job.spec.torch_elastic_policy
    limit = policy.effective_max_restarts if policy is not None else 0
    return f"all pods are restarted, because their processes have used up their restarts (maxRestarts {limit})"


def find_closing_tasks(job: TorchJob, pods: Iterable[PodView]) -> frozenset[str]:
    """Return the tasks whose pods get no successors any more, among the tasks that decide the success of the job, in
    lower case."""
    current = [pod for pod in pods if pod.restart == job.status.restart_generation]
    succeeded = {pod.task for pod in current if pod.phase == "Succeeded"}
    if not succeeded:
        return frozenset()
    decisive = task_members.decisive_tasks(job)
    meeting = decisive & task_members.meeting_tasks(job.spec)
    closing = set(meeting if has_succeeded(job, current) else ())
    if task_members.needs_all_tasks(job):
        for stage in job.spec.stages:
            world = decisive.intersection(task_members.training_tasks(job.spec, stage.tasks)) - meeting
            closing |= world if any(task_type.lower() in succeeded for task_type in world) else set()
    return frozenset(task_type.lower() for task_type in closing)


def stages_after_restart(job: TorchJob) -> Mapping[str, StageStatus]:
    """Return the stages that stay begun when all pods of a job are restarted.

    A stage begins anew if it waited for a task whose world is not over: the other tasks of this world need the task
    again.
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
