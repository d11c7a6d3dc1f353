"""The facts about a job that decide whether the job hangs.

One rule: pure. A job whose health is not watched has no such value, so that it costs no memory for it.
"""

from dataclasses import dataclass

from crds.torchjob.jobspec import Health
from crds.torchjob.status import Hang, Reported
from crds.torchjob.torchjob import TorchJob


@dataclass(frozen=True, slots=True)
class JobHealth:
    """A job whose steps are watched while it runs."""

    rules: Health
    run: str
    """The run of the job (`TorchJobStatus.run`)."""
    may_step: bool
    """Whether the job is to make steps: it runs, and is not being resized."""
    reported: Reported | None
    """What its status says about its reports."""
    hang: Hang | None
    """The hang in its status, unless it is of another run."""


def of(job: TorchJob) -> JobHealth | None:
    """Return the health of a job; None if it is not watched."""
    if not job.spec.health.hang_timeout_seconds:
        return None
    status = job.status
    is_leaving = job.spec.suspend or job.spec.cancel or job.is_deleting
    may_step = status.phase == "Running" and not (is_leaving or status.is_changing_size)
    return JobHealth(job.spec.health, status.run, may_step, status.reported, job.hang)
