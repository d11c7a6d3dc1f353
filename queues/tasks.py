"""The keys that workers reconcile: offered by the leader, and leased to a worker as tasks.

One rule: all are frozen and carry keys and numbers only, never a manifest. A brief is opaque here.
"""

from dataclasses import dataclass, field

from crds.keys import JobKey
from queues.task_times import TaskTimes
from queues.values import Reservation
from queues.work_kinds import WorkKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A key that a worker should reconcile."""

    key: JobKey
    tenant: str
    """The tenant whose turn the key uses, never a name that users choose (`coordinator.routing.route.tenant`)."""
    seen: int = 0
    """The newest resourceVersion of the key's pods that the coordinator knows, and a worker's cache must have."""
    delay: float = 0.0
    """Seconds to wait before the run. An offer without delay goes first."""
    version: int = 0
    """The job's resourceVersion if only a change of it or its pods is the reason, else 0 (`WorkSink.finish`)."""
    kind: WorkKind = "begins"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A key that is leased to a worker."""

    key: JobKey
    token: str
    """The fencing token. A worker with another token for the key has lost the lease."""
    tenant: str
    seen: int
    failures: int
    """The number of runs in a row that ended in an error, for the backoff."""
    reservation: Reservation | None
    brief: bytes = b""
    """What the leader has seen of the job (`reconcilers.views.job_brief`); empty if it told nothing."""
    times: TaskTimes | None = field(default=None, compare=False)
    """When the key became ready and was leased; None if that is not known."""
