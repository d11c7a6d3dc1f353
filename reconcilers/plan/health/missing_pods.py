"""Why pods of an admitted job do not run, as its conditions show it: in the words of schedulers, nodes and groups.

One rule: pure. A reason is written when it changes its kind, not for each number in its message, and not in the first
seconds, in which most pods are bound and start.

Two things show that a scheduler does not bind a gang as a whole. Some pods of the gang's minimum have nodes and others
have no node; or the scheduler says nothing about a pod. No scheduler of that name runs then, or it binds pods singly.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from crds.torchjob import conditions
from crds.torchjob.conditions import GROUP_PENDING, LACKS_PODS, NOT_STARTING, NOT_WHOLE, UNSCHEDULABLE
from crds.torchjob.stages import Stage
from crds.torchjob.status import TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from gang.values import GroupView
from reconcilers.plan import moment, not_running_reason, progress
from reconcilers.plan.gangs import Scheduling
from reconcilers.plan.health import refusals
from reconcilers.plan.health.refusals import Refusal
from reconcilers.plan.progress import JobProgress
from reconcilers.pods import task_members
from reconcilers.values import Blocker
from reconcilers.views import pod_problems
from reconcilers.views.pod_view import PodView

SOON, LONG = 10.0, 30.0
"""The age in seconds from which a pod or a group should have got on, and from which a scheduler should have said
something about a pod."""
NOT_BOUND = "the scheduler has not bound the gang"
"""The message of a refusal without words of the scheduler."""
STARTS = "its pods have nodes and start"
"""The message of an admitted job whose pods were missing before."""


@dataclass(frozen=True, slots=True)
class MissingPods:
    """Why pods do not run."""

    reason: Blocker | None = None
    next_change: float | None = None
    """Seconds until more pods or groups should have got on; None if none is younger."""
    refusal: Refusal | None = None
    """The refusal of the scheduler that does not bind one of the gangs; None if all are bound, or may soon be."""


@dataclass(frozen=True, slots=True)
class WaitingPods:
    """The pods and groups of a job that wait."""

    scheduling: Scheduling
    progress: JobProgress
    pods: Sequence[PodView]
    groups: Sequence[GroupView]
    now: datetime

    def find(self) -> MissingPods:
        """Return why pods of the job do not run."""
        waiting = [pod for pod in self._present if pod.phase == "Pending"]
        ages = [self._age(pod.since) for pod in waiting] + [self._age(since) for _, since in self._pending]
        due = (limit - age for age in ages if age is not None for limit in (SOON, LONG) if age < limit)
        old = [pod for pod in waiting if self._is_old(pod.since, SOON)]
        unbound = [pod for pod in old if not pod.node]
        lost = [pod for pod in unbound if self._is_old(pod.since, LONG)]
        reason = self._judge(old, unbound, lost)
        return MissingPods(reason, min(due, default=None), self._refusal(reason))

    def _judge(self, old: Sequence[PodView], unbound: Sequence[PodView], lost: Sequence[PodView]) -> Blocker | None:
        """Return the reason: a ladder, in which a reason that names more of the cause comes first."""
        if lost and (split := self._describe_gang(lost)):
            return split
        if troubled := [pod for pod in unbound if pod.problem]:
            return Blocker(UNSCHEDULABLE, not_running_reason.summarize(self.job, troubled, self.groups))
        if late := [group for group, since in self._pending if self._is_old(since, SOON)]:
            return Blocker(GROUP_PENDING, not_running_reason.summarize(self.job, (), late))
        if ignored := next((pod for pod in lost if not pod.problem), None):
            return Blocker(UNSCHEDULABLE, f"pod {ignored.name} has no node: {self._ignored_by(ignored)}")
        stopped = [pod for pod in old if pod.node and not_running_reason.place_of(pod) < pod_problems.SAYS_LITTLE]
        return Blocker(NOT_STARTING, not_running_reason.summarize(self.job, stopped, ())) if stopped else None

    def _refusal(self, reason: Blocker | None) -> Refusal | None:
        """Return the refusal of a gang that is not bound; pods beyond its minimum are ignored. A job that has run in
        this admission keeps its room."""
        if refusals.has_run(self.job, self.scheduling.admission):
            return None
        closed = [group for group in self.groups if group.phase == "Refused" and not group.deleting]
        if reason is None or reason.reason == NOT_STARTING:
            reason = Blocker(GROUP_PENDING, not_running_reason.summarize(self.job, (), closed)) if closed else None
        since = min(self._unbound_times(), default=None)
        if reason is None or since is None:
            return None
        return Refusal(datetime.fromtimestamp(int(since), UTC), reason.message or NOT_BOUND)

    def _unbound_times(self) -> Iterator[float]:
        """Yield since when each pod and group of the gangs has waited that are not bound."""
        for stage in self.progress.begun if self.scheduling.together else ():
            gang, start = self.scheduling.gang(stage, self._incomplete), moment.began(self.job, stage)
            names, bound = self._bound(stage)
            if bound < gang.size:
                pods = (pod for pod in self._present if pod.phase == "Pending" and pod.task in names and not pod.node)
                yield from (pod.since for pod in pods if pod.since is not None)
                groups = (group for group in self.groups if group.name == gang.name and group.phase != "Ready")
                least = start.timestamp() if start else 0.0
                yield from (max(group.since, least) for group in groups if group.since is not None)

    @property
    def _incomplete(self) -> frozenset[str]:
        return self.scheduling.incomplete_tasks(self.progress, self.pods)

    def _describe_gang(self, lost: Sequence[PodView]) -> Blocker | None:
        """Return the reason of a gang that is not bound as a whole."""
        for stage in self.progress.begun if self.scheduling.together else ():
            gang = self.scheduling.gang(stage, self._incomplete)
            names, bound = self._bound(stage)
            without = [pod for pod in lost if pod.task in names]
            waits = any(group.name == gang.name for group, _ in self._pending)
            ignored = [pod for pod in without if not (pod.problem or waits)]
            if without and (ignored or 0 < bound < gang.size):
                (first, *_), backend = ignored or without, self.scheduling.backend
                unseen = any(group.name == gang.name and not group.seen for group in self.groups)
                parts = (
                    f"{bound} pods of gang {gang.name} have nodes, and it needs {gang.size}",
                    f"{first.name} has none ({first.problem or self._ignored_by(first)})",
                    f"no scheduler has seen the PodGroup {gang.name}" if unseen else "",
                    backend.check,
                )
                return Blocker(NOT_WHOLE, "; ".join(filter(None, parts)))
        return None

    def _ignored_by(self, pod: PodView) -> str:
        names = {name.lower(): name for name in self.job.spec.tasks}
        return f"the scheduler {self.scheduling.scheduler_of(names[pod.task])} has not looked at it"

    @property
    def job(self) -> TorchJob:
        """The job as it was granted."""
        return self.scheduling.job

    @property
    def _present(self) -> list[PodView]:
        return [pod for pod in self.pods if not (pod.deleting or progress.is_outdated(self.job, pod))]

    def _bound(self, stage: Stage) -> tuple[frozenset[str], int]:
        """Return the tasks of a stage's gang, in lower case, and how many of their pods have nodes."""
        names = frozenset(name.lower() for name in task_members.training_tasks(self.job.spec, stage.tasks))
        return names, sum(pod.task in names and bool(pod.node or pod.finished) for pod in self._present)

    @property
    def _pending(self) -> list[tuple[GroupView, float | None]]:
        """The groups that no scheduler has let in and none of whose pods has a node, and when each began to wait: a
        restart keeps a group."""
        waiting = [group for group in self.groups if group.phase == "Pending" and not group.deleting]
        found = []
        for stage in self.progress.begun if waiting else ():
            name, start = self.scheduling.gang(stage).name, moment.began(self.job, stage)
            for group in waiting:
                if group.name == name and not self._bound(stage)[1]:
                    since = None if group.since is None else max(group.since, start.timestamp() if start else 0.0)
                    found.append((group, since))
        return found

    def _age(self, since: float | None) -> float | None:
        return None if since is None else self.now.timestamp() - since

    def _is_old(self, since: float | None, limit: float) -> bool:
        age = self._age(since)
        return age is not None and age >= limit


def show(after: TorchJobStatus, found: Blocker | None, message: str, now: datetime) -> TorchJobStatus:
    """Return the status of a job whose condition says why pods do not run: Running of a job that runs without them,
    else Admitted. `message` is the message for a running job without such pods. Other reasons of the condition stay."""
    kind = "Running" if after.phase == "Running" else "Admitted"
    current = conditions.find(after.conditions, kind)
    replaced = ("Admitted", "Restarting", "Running", conditions.WAITS_FOR_RANKS, *LACKS_PODS)
    if current is None or current.status != "True" or current.reason not in replaced:
        return after
    if found is None and current.reason not in LACKS_PODS:
        return after
    reason = found or Blocker(kind, message if kind == "Running" else STARTS)
    updated = conditions.set_condition(
        after.conditions, kind, True, reason.reason, reason.message, now, current.observed_generation
    )
    if _kind_of(conditions.find(updated, kind)) == _kind_of(current):
        return after
    return after.model_copy(update={"conditions": updated})


def _kind_of(condition: conditions.Condition | None) -> tuple[str, int]:
    assert condition is not None
    return condition.reason, pod_problems.place(pod_problems.UNSCHEDULABLE, condition.message)
