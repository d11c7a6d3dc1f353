"""The reports of a pod about its training, and what the coordinators know about the training afterwards.

One rule: values only. Times are seconds since 1970 by the clock of Redis, never by the clock of a pod or a coordinator.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from crds.keys import JobKey

Reading: TypeAlias = float | str
"""A finite number, or the text of what is none ("NaN"), which is shown and not computed with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a training is by its own estimate: what a report of the Kubeflow Trainer protocol has beside metrics."""

    percent: int | None = None
    """From 0 to 100."""
    remaining_seconds: int | None = None
    steps: int | None = None
    """The number of steps of the whole training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One report, as a pod sends it."""

    pod: str
    step: int | None
    """None: the report does not say it, and the step of the pod stays; only a report with progress may omit it."""
    samples_per_second: Reading | None = None
    """What this pod alone trains; the samples of a job are the sum over its pods."""
    loss: Reading | None = None
    gauges: Mapping[str, Reading] = field(default_factory=dict)
    checkpoint: int | None = None
    """The number of the request to save that this report answers; None: of no request."""
    last: bool = False
    """Whether the training process ends with this report."""
    progress: Progress | None = None
    """None for a report of torchq's own protocol."""
    run: str = ""
    """The run of the job in which the report came, as its coordinator knew it; empty if its health is not watched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivedReport:
    """A report on its way into the store."""

    job: JobKey
    report: Report
    age: float = 0.0
    """How many seconds ago the report has arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodReport:
    """The last report of a pod of a job. The pod may no longer exist."""

    step: int
    """0 if no report has said it."""
    at: float
    """When the report came."""
    moved_at: float
    """When a report came first with this step, forward or, after a restart, back, or with this percentage."""
    steps_per_second: float | None = None
    """The speed at which the step moved forward last; None before that, and after a step back."""
    samples_per_second: Reading | None = None
    loss: Reading | None = None
    gauges: Mapping[str, Reading] = field(default_factory=dict)
    checkpoint: int | None = None
    """The highest number of a request to save that this pod has ever answered."""
    progress: Progress | None = None
    """None if the last report was one of torchq's own protocol."""
    run: str = ""
    """The run of the job in which the report came; empty if that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReports:
    """The last report of each pod of a job."""

    read_at: float
    """The time of the reading, by the same clock as the times of the reports."""
    pods: Mapping[str, PodReport]

    @property
    def checkpoint(self) -> int:
        """The highest number of a request to save that one of the pods has answered; 0 if no pod has answered."""
        return max((report.checkpoint or 0 for report in self.pods.values()), default=0)
