"""The opening of start gates, behind which bound pods wait until other pods run.

One rule: pure. A gate opens when the task's upstream tasks have progressed far enough.

A gang scheduler binds all pods of a stage at once. Otherwise a gang that waits for its master and a master that waits
for its gang would block each other. Without a gang scheduler there are no gates: pods are created when they may start.
"""

from collections.abc import Iterable

from crds import labels
from reconcilers.plan.progress import JobProgress
from reconcilers.pods import start_gate
from reconcilers.values import Action, PatchPodMetadata
from reconcilers.views.pod_view import PodView


def open_gates(progress: JobProgress, pods: Iterable[PodView]) -> tuple[Action, ...]:
    """Return the action that opens the gates of pods whose task may start."""
    started = {task_type.lower() for task_type in progress.started}
    waiting = tuple(pod for pod in pods if pod.gated and pod.task in started and not (pod.deleting or pod.finished))
    return (PatchPodMetadata(waiting, {"annotations": {labels.START: start_gate.OPEN}}),) if waiting else ()
