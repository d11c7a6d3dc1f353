"""The rows of the history: one for each job, hold, wait and pod that outlives its job, and for queues, pools and gaps.

One rule: a row is complete in itself, and has a natural key and the version that it was made from. To write a row twice
changes nothing, and a row of an older version never replaces one of a newer version.

Times are whole seconds since the epoch; an end that is None has not come yet. Amounts are integers in canonical names
and units, as in charges. A time from `start` to `end` is [start, end).

    row       key              what is in it
    JobRow    uid              one job, from its submission to its end
    HoldRow   uid, number      a time for which the job held the same room (`crds.holds`)
    WaitRow   uid, start       a time for which the job waited in its queue and could be picked
    PodRow    uid              a pod that goes on after the end or the deletion of its job
    QueueRow  name, start      the weight of a queue from then on; 0 when the queue is deleted
    PoolRow   start            what the pool had from then on
    GapRow    start            a time for which no recorder saw the cluster
"""

from dataclasses import dataclass, field

from crds.resources.amounts import Amounts

OUTCOMES = ("Succeeded", "Failed", "Cancelled", "Deleted")
"""How jobs end. A job that is deleted before it has finished is Deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """One job."""

    uid: str
    """The uid under which the job was submitted first: a restored job has it in `status.restoredFrom`."""
    version: int
    """The resourceVersion of the object."""
    namespace: str
    name: str
    queue: str
    """The queue of its last hold, else the one that it waits in."""
    user: str = ""
    """Who submitted it, as the annotation `submitted-by` says; empty: not known."""
    created: int
    ended: int | None = None
    outcome: str = ""
    """One of OUTCOMES; empty while the job has not ended."""
    is_approximate: bool = False
    """Whether the end was not seen: `ended` is then the time of the last sight of the job."""
    reason: str = ""
    """The reason of its condition, of its end or else of why it waits."""
    message: str = ""
    restarts: int = 0
    disruptions: int = 0
    result: str = ""
    """The result as JSON text."""
    seen: int = 0
    """When the recorder has seen this state, by the clock of the API server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldRow:
    """A time for which a job held the same room, or several such times together (`numbers`)."""

    uid: str
    number: int
    version: int
    numbers: str = ""
    """Of several holds together, all their numbers, such as 1-3,5. Such a row is stored only where one of these holds
    is missing, and then in place of those that are there."""
    queue: str
    attempt: int
    workers: int | None = None
    start: int
    running: int | None = None
    end: int | None = None
    ended: str = ""
    """Why it ended."""
    charge: Amounts = field(default_factory=dict)
    unpaid: Amounts = field(default_factory=dict)
    """The part of the charge that is idle growth."""
    seconds: Amounts = field(default_factory=dict)
    """Of several holds together, the sums of amount x seconds in place of a charge."""
    unpaid_seconds: Amounts = field(default_factory=dict)
    others: int = 0
    """The number of further resources that are not named."""
    is_approximate: bool = False
    """Whether the end was not seen, or the hold was under a worker of an older version, which records no holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitRow:
    """A time for which a job waited in its queue, and was neither on hold nor suspended."""

    uid: str
    start: int
    version: int
    queue: str
    end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRow:
    """A pod that occupies its room after its job has ended, been deleted or given its room back."""

    uid: str
    version: int
    job: str
    """The uid of its job."""
    namespace: str
    queue: str
    start: int
    end: int | None = None
    charge: Amounts = field(default_factory=dict)
    is_approximate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """The weight of a queue from a time on."""

    name: str
    start: int
    version: int
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRow:
    """What the pool had from a time on; empty: it has no limits, or they are not known."""

    start: int
    amounts: Amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class GapRow:
    """A time for which no recorder saw the cluster. A gap that is cut shorter later replaces the longer one."""

    start: int
    end: int


Row = JobRow | HoldRow | WaitRow | PodRow | QueueRow | PoolRow | GapRow
