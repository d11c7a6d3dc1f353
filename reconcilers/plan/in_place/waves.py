"""The waves in which a restart of a whole job replaces the pods of a gang, so that its room stays its own.

One rule: pure. While the pods of an earlier run hold the room of a gang, every new pod waits at a closed start gate, so
that no run meets another.

Where all pods of a gang are deleted at once, their scheduler sees free room before the new pods exist. The scheduler
may bind another gang there, a gang that is not torchq's and that torchq does not count. A new pod has the
name of the old one, and perhaps the only node with room for it, so the new pod cannot be made first. So a few pods are
deleted, and the next pods once all deleted or missing pods have nodes again. The group needs no change:
its scheduler binds such a pod like a pod that replaces a failed one, and `reconcilers.plan.gangs` has a group let in
again that became Pending meanwhile.

- A wave is an eighth of the gang, at least one pod. Whoever needs more room than that of a wave does not get it.
- The restart takes at most `LONGEST` seconds longer than all at once: then all others are replaced together.
- In waves go the tasks whose pods have a start gate, and those with the same image, which then can run a gate. Other
  pods are replaced together, after the waves. In a job of which no pod has a gate, these are all pods.
- Pods that are restarted in place keep their room. The few pods that are replaced beside these are replaced at once. So
  are the workers of an elastic job, which need not all be bound.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from crds.torchjob import conditions
from crds.torchjob.torchjob import TorchJob
from gang import backends
from reconcilers.plan import progress
from reconcilers.plan.pod_deletion import PodDeletion
from reconcilers.pods import start_gate
from reconcilers.views import containers
from reconcilers.views.pod_view import PodView

MOST_WAVES = 8
LONGEST = 120.0
"""The longest time, in seconds from the end of the run or of the back-off, in which pods are replaced in waves."""


@dataclass(frozen=True, slots=True)
class Wave:
    """The pods of a restart that are deleted now."""

    pods: tuple[PodView, ...]
    held: bool = False
    """Whether others go on meanwhile, so that new pods are made, and wait at their gates."""
    remaining: float | None = None
    """Seconds after which all others are deleted although the new pods have no nodes."""


def next_wave(job: TorchJob, pods: Sequence[PodView], replaced: tuple[PodView, ...], deletion: PodDeletion) -> Wave:
    """Return the pods, of those that a restart replaces, that are deleted next."""
    tasks, remaining = gated_tasks(job), LONGEST - _elapsed(job, deletion.now)
    old = [pod for pod in replaced if pod.task in tasks]
    if not old or remaining <= 0:
        return Wave(replaced)
    bound = frozenset(pod.uid for pod in pods if pod.task in tasks and _holds_room(pod, deletion))
    size = sum(task.num_tasks for name, task in job.spec.tasks.items() if name.lower() in tasks)
    spare = math.ceil(size / MOST_WAVES) - (size - len(bound))
    gone = (pod for pod in old if pod.uid not in bound)
    next_ones = [pod for pod in old if pod.uid in bound][: max(0, spare)]
    return Wave((*gone, *next_ones), held=True, remaining=remaining)


def _holds_room(pod: PodView, deletion: PodDeletion) -> bool:
    return bool(pod.node) and pod.node not in deletion.dead and not (pod.deleting or pod.finished)


def _elapsed(job: TorchJob, now: float) -> float:
    """Return the seconds since the pods of the job could be replaced first; infinite for a job that has not run."""
    ran, paused = conditions.find(job.status.conditions, "Running"), job.status.restart_not_before
    if ran is None or ran.status == "True":
        return math.inf
    since = ran.last_transition_time if paused is None else max(ran.last_transition_time, paused)
    return now - since.timestamp()


def gated_tasks(job: TorchJob) -> frozenset[str]:
    """Return the tasks of gangs, in lower case, whose new pods can wait at a gate."""
    name = job.admission.gang_scheduler if job.admission is not None else None
    if job.spec.is_elastic or not backends.get_backend(name).together:
        return frozenset()
    over = progress.completed_tasks(job)
    present = [name for stage in progress.begun_stages(job) for name in stage.tasks if name.lower() not in over]
    tasks = {name: job.spec.tasks[name] for name in present if not job.spec.tasks[name].auxiliary}
    images = {name: containers.main(task.template["spec"]).get("image") for name, task in tasks.items()}
    proven = {images[name] for name, task in tasks.items() if start_gate.needs_gate(task)}
    return frozenset(name.lower() for name, image in images.items() if image in proven)
