"""The opening of start gates (`reconcilers.pods.start_gate`): which pods start now, and which pods wait for others.

One rule: pure. A gate opens when the upstream tasks of its task have progressed far enough.

Workers that meet at a rendezvous store also start together. Each worker that joins a world on its own makes torchrun
restart all processes of that world. So the workers of the first start, and those that one growth adds, wait until all
granted workers exist and have reached their gate, though no longer than `LONGEST_WAIT` after the first of them. Any
other new worker replaces a worker that was lost. Such a replacement starts at once.

While pods of a gang are replaced in waves (`reconcilers.plan.in_place.waves`), all gates stay closed.

Where the places of pods decide about their ranks (`reconcilers.pods.topology`), all these pods wait until all pods
of their world are bound. Their ranks are written with the annotation that opens their gates.

In the mode InPlaceRestart, added workers wait until a restart of the whole job has given them a rank
(`reconcilers.plan.elastic.change`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from crds.torchjob.tasks import WORKER
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import progress
from reconcilers.plan.progress import JobProgress
from reconcilers.views.pod_view import PodView

LONGEST_WAIT = 30.0
"""The seconds for which workers at their gates wait for others."""


@dataclass(frozen=True, kw_only=True)
class StartGates:
    """The pods of an active job, with regard to their start gates."""

    job: TorchJob
    pods: Sequence[PodView]
    progress: JobProgress
    now: float
    joining: frozenset[str] = frozenset()
    """The names of the pods that have no rank yet."""
    held: bool = False
    """Whether all gates stay closed, because runs from before the last restart go on."""
    unplaced: frozenset[str] = frozenset()
    """The names of the pods whose ranks follow from the nodes of their world, while that is not bound as a whole."""

    @cached_property
    def open_tasks(self) -> frozenset[str]:
        """The tasks whose pods start at once, so that they are created with an open gate."""
        if self.held:
            return frozenset()
        return self.progress.started - ({WORKER} if self._start_together else frozenset[str]())

    @cached_property
    def to_open(self) -> tuple[PodView, ...]:
        """The pods whose gates open now."""
        started = {task_type.lower() for task_type in self.progress.started}
        waiting = (pod for pod in self.pods if pod.gated and not (pod.deleting or pod.finished))
        return tuple(pod for pod in waiting if pod.task in started and self._may_pass(pod))

    @property
    def requeue_after(self) -> float | None:
        """Seconds until workers at their gates wait for others no longer; None if none waits."""
        return self._remaining if self._start_together and self._arrived and self._remaining > 0 else None

    def _may_pass(self, pod: PodView) -> bool:
        if self.held or pod.name in self.joining or pod.name in self.unplaced:
            return False
        if pod.task != WORKER.lower() or not self._start_together:
            return True
        if self._is_complete:
            return True
        return pod.waits and self._remaining <= 0

    @cached_property
    def _workers(self) -> tuple[PodView, ...]:
        """The workers since the last restart of the whole job."""
        return tuple(pod for pod in self.pods if pod.task == WORKER.lower() and not progress.is_outdated(self.job, pod))

    @cached_property
    def _start_together(self) -> bool:
        """Whether workers at their gates wait for others: at the first start, and while workers are added."""
        if not self.job.spec.rendezvous:
            return False
        scaling = self.job.status.scaling
        is_growing = scaling is not None and scaling.deadline is not None
        return is_growing or all(pod.gated for pod in self._workers)

    @cached_property
    def _arrived(self) -> tuple[float, ...]:
        """The times at which workers reached their gates."""
        waiting = (pod for pod in self._workers if pod.waits and not pod.deleting)
        return tuple(pod.shut_since for pod in waiting if pod.shut_since is not None)

    @property
    def _is_complete(self) -> bool:
        """Whether every granted worker is at its gate or has passed it."""
        passed = sum(not pod.gated for pod in self._workers)
        return passed + len(self._arrived) >= self.job.spec.worker_count

    @property
    def _remaining(self) -> float:
        """The seconds for which the workers that have reached their gates still wait for others."""
        return LONGEST_WAIT - (self.now - min(self._arrived, default=self.now))
