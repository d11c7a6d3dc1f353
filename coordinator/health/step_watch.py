"""The watch over the steps that the pods of one running job report, by one leader without a break.

One rule: pure. Times are monotonic times of the leader alone. The times and the steps of reports are only compared with
those of the look before, so that no clock of a pod or of Redis can make a job hang, however it is set.

    the time of a watch begins anew              how that is noticed
    the job is restarted, resized or suspended   its run is another one, or it does not run (`JobHealth`)
    a pod joins the others, or is replaced       a pod runs that did not run at the look before; the limit is that
                                                 of a first step again
    all pods that have reported have ended       none of them runs; the others have to report first
    Redis is flushed, another process leads      the store has another epoch
    the leader, Redis or the door for reports    two looks are more than LONGEST_BREAK apart
    could not be reached

The limit is `hangTimeoutSeconds`, and `firstStepSeconds` until a step has moved since the pods run. The defaults of
the limits are in `crds.torchjob.jobspec.Health` alone.

The job's status records whether pods have reported, and whether a step has moved, since the last restart or resize; and
each report has its run, which the coordinator that took the report has added. So a later leader knows it too, and only
the time begins anew.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from coordinator.reports.report_values import PodReport
from crds.torchjob.status import Reported

LONGEST_BREAK = 30.0
"""The longest time between two looks, in seconds. After a longer one nobody knows what was reported meanwhile."""


@dataclass(frozen=True, slots=True)
class Look:
    """One reading of the reports."""

    at: float
    """The monotonic time of the leader."""
    epoch: int
    """The epoch of the store after the reading; 0 if the store is lost."""

    def continues(self, before: "Look | None") -> bool:
        """Return whether the looks belong to one watch without a break."""
        is_same = before is not None and before.epoch == self.epoch != 0
        return is_same and before is not None and 0.0 <= self.at - before.at <= LONGEST_BREAK


@dataclass(frozen=True, slots=True)
class PodSteps:
    """The knowledge about the reports of one running pod."""

    last: PodReport
    is_resuming: bool
    """Whether its next report is no step, because it may say where the pod goes on after a start."""
    has_moved: bool
    """Whether its step has moved since the run began, or since the last pod joined."""
    heard: float
    """When the last report was noticed, or the watch began."""
    moved: float
    """When it was noticed that the step had moved, or the watch began."""
    left: float | None = None
    """When it was first noticed after that that another pod had gone on; None if none has."""


@dataclass(frozen=True, slots=True)
class StepWatch:
    """The knowledge about the steps of one job in one run."""

    run: str
    began: float
    running: frozenset[str]
    """The names of the pods that run."""
    has_reported: bool = False
    """Whether a pod has reported since the run began."""
    has_moved: bool = False
    """Whether a step has moved since the run began, or since the last pod joined."""
    moved: float = 0.0
    """When it was last noticed that a step had moved, or the watch began."""
    is_resumed: bool = False
    """Whether steps had moved in this run before the watch began."""
    pods: Mapping[str, PodSteps] = field(default_factory=dict)
    """The running pods that have reported since the run began, by name."""
    hung: bool = False
    """Whether the job was found to hang at the look before."""

    @property
    def reported(self) -> Reported | None:
        """The facts that the status of the job should have; None if no pod has reported since the run began."""
        return Reported(run=self.run, moved=self.has_moved) if self.has_reported else None


def look(
    before: StepWatch | None,
    run: str,
    running: Iterable[str],
    reports: Mapping[str, PodReport],
    known: Reported | None,
    now: float,
    *,
    continues: bool = True,
) -> StepWatch:
    """Return the watch after one more look; `before` is the earlier watch of this leader over the job, if there is one.

    `known` is the information about reports in the status of the job. `continues` tells whether nothing was missed
    since the look before.
    """
    names = frozenset(running)
    own = {name: report for name, report in reports.items() if report.run == run}
    present = {name: report for name, report in own.items() if name in names}
    if before is None or before.run != run:
        is_known = known is not None and known.run == run and not (own and not present)
        return _begin(run, names, present, known if is_known else None, now)
    if before.pods and names.isdisjoint(before.pods):
        return _begin(run, names, present, None, now)
    if not names <= before.running:
        pods = {name: PodSteps(report, True, False, now, now) for name, report in present.items()}
        return StepWatch(run, now, names, has_reported=before.has_reported, moved=now, pods=pods)
    if not continues:
        return _resume(before, names, present, now)
    pods = {name: pod for name, pod in before.pods.items() if name in names}
    pods = _leave(pods | {name: _hear(before, name, report, now) for name, report in present.items()}, now)
    return replace(
        before,
        running=names,
        has_reported=before.has_reported or bool(pods),
        has_moved=before.has_moved or any(pod.has_moved for pod in pods.values()),
        moved=max((before.moved, *(pod.moved for pod in pods.values()))),
        pods=pods,
    )


def _begin(
    run: str, names: frozenset[str], present: Mapping[str, PodReport], known: Reported | None, now: float
) -> StepWatch:
    """Begin the watch over a run."""
    has_moved = known is not None and known.moved
    pods = {name: PodSteps(report, known is None, has_moved, now, now) for name, report in present.items()}
    has_reported = known is not None or bool(pods)
    return StepWatch(run, now, names, has_reported, has_moved, now, is_resumed=has_moved, pods=pods)


def _resume(before: StepWatch, names: frozenset[str], present: Mapping[str, PodReport], now: float) -> StepWatch:
    """Begin the time anew after a break. The knowledge about the run is kept."""
    known = {name: pod for name, pod in before.pods.items() if name in names}
    pods = known | {name: _hear(before, name, report, now) for name, report in present.items()}
    anew = {name: replace(pod, heard=now, moved=now, left=None) for name, pod in pods.items()}
    return replace(before, began=now, running=names, moved=now, is_resumed=before.has_moved, pods=anew, hung=False)


def _hear(watch: StepWatch, name: str, report: PodReport, now: float) -> PodSteps:
    """Return the knowledge about a pod after a look. The first report of a pod in a run is no step: the report may only
    say at which step the pod continues.
    """
    pod = watch.pods.get(name)
    if pod is not None and _mark(report) == _mark(pod.last):
        return pod
    if pod is None or pod.is_resuming:
        return PodSteps(report, is_resuming=False, has_moved=watch.is_resumed, heard=now, moved=now)
    if _mark(report)[1:] == _mark(pod.last)[1:]:
        return replace(pod, last=report, heard=now)
    return PodSteps(report, is_resuming=False, has_moved=True, heard=now, moved=now)


def _leave(pods: Mapping[str, PodSteps], now: float) -> dict[str, PodSteps]:
    """Return the pods after a look, where pods that stand count as left behind once another pod has made a step."""
    has_stepped = any(pod.has_moved and pod.moved == now for pod in pods.values())
    return {
        name: replace(pod, left=now) if has_stepped and pod.moved < now and pod.left is None else pod
        for name, pod in pods.items()
    }


def _mark(report: PodReport) -> tuple[float, float, int]:
    return report.at, report.moved_at, report.step
