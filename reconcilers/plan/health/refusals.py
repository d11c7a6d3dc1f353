"""Gangs that their scheduler does not bind, and jobs that lose their room because of such a gang.

One rule: pure. A worker reports the refusal, and the coordinator decides whether another job needs the room
(`status.recalled`). A decision about a refused gang holds for that refusal alone: a gang that is bound in the meantime
keeps its room.
"""

from dataclasses import dataclass
from datetime import datetime

from crds import excerpts
from crds.torchjob import conditions
from crds.torchjob.status import Admission, TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import status
from reconcilers.values import Blocker

PAUSE, LONGEST_PAUSE = 15.0, 300.0
"""The first pause in seconds after which such a job is tried again, and the longest: each is twice as long."""
NOT_TAKEN = ("Missing", "Refused")
"""The ends of the reasons for which a group cannot be created, after its kind."""
MOST_WORDS = 1024
"""The most characters of the scheduler's words in `status.queue`."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The words of a scheduler about a gang that it does not bind."""

    since: datetime
    """The time since which the gang has waited, in whole seconds."""
    message: str


def has_run(job: TorchJob, admission: Admission) -> bool:
    """Return whether a job has run in an admission. The job then keeps its room, whatever its scheduler does."""
    ran, admitted = conditions.find(job.status.conditions, "Running"), admission.admitted_at
    return ran is not None and admitted is not None and ran.last_transition_time > admitted


def of_blocker(job: TorchJob, blocker: Blocker, now: datetime) -> Refusal | None:
    """Return the refusal of a gang whose group the API server does not take, as a webhook of its scheduler demands, or
    does not know; None if the blocker is about anything else."""
    is_about_group = blocker.reason.startswith("PodGroup") and blocker.reason.endswith(NOT_TAKEN)
    if not is_about_group or job.admission is None or has_run(job, job.admission):
        return None
    return Refusal(job.status.refused_since or now.replace(microsecond=0), blocker.message)


def note(after: TorchJobStatus, refusal: Refusal | None) -> TorchJobStatus:
    """Return the status with the refusal of a job that does not run. Decisions about an earlier refusal are void.

    While a group of the job is yet to be created, the status keeps its text.
    """
    if refusal is None and status.is_about_groups(after):
        return after
    since = None if refusal is None or after.phase != "Admitted" else refusal.since
    recalled = after.recalled if since is not None and after.recalled == since else None
    if (since, recalled) == (after.refused_since, after.recalled):
        return after
    return after.model_copy(update={"refused_since": since, "recalled": recalled})


def is_recalled(job_status: TorchJobStatus, refusal: Refusal | None) -> bool:
    """Return whether the coordinator takes the room of a job back because of a refusal that still holds."""
    return refusal is not None and job_status.phase == "Admitted" and job_status.recalled == refusal.since


def send_back(job: TorchJob, message: str, now: datetime) -> TorchJobStatus:
    """Return the status of a job that waits again, outside the order of its queue, until it may be tried again.

    No try is counted: the job did nothing wrong.
    """
    before = job.status.queue
    number = 1 if before is None or job.is_retry_due(now) else before.refusals + 1
    words = {"reason": conditions.WAITS_FOR_SCHEDULER, "message": excerpts.excerpt(message, MOST_WORDS)}
    queue = status.back_off(job, now, status.pause(job, number, PAUSE, LONGEST_PAUSE), refusals=number, **words)
    return status.send_back(job, conditions.WAITS_FOR_SCHEDULER, message, queue, now)
