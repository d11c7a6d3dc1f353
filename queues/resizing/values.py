"""The values of a plan of resizes: the elastic jobs as its input, and the resizes, claims and reasons as its result.

One rule: all are frozen and carry keys and numbers only, never a pod or a status.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

from crds.keys import JobKey
from crds.resources.amounts import Amounts
from queues.placement.places import PromisedNodes

Reason = Literal["Idle", "GiveBack"]
"""Why a job is resized: it grows into idle room, or it gives workers back to a job that waits."""

KeptCode = str
"""Why a job is not resized. `ElasticJob.busy` goes through as it is; the codes of a plan are

    Off              autoscale is off, and nothing has to be given back
    BelowWish        the job has fewer workers than its owner wants; further ones come by its queue's order
    AtMost           the job has all the workers that it may have
    QueueHeld        the queue is on hold
    Resting          its last resize is too recent
    NoRoom           no step fits into room that is free of every claim
    NoNodes          the workers of a step find no nodes with such room
    NotIdleYet       there is room, but not for long enough
    JobsFit          a waiting job fits into the room, and goes first
    Leaving          workers of the job are on their way out
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticJob:
    """An admitted job whose number of workers can change."""

    key: JobKey
    queue: str
    """The queue that the job is charged to."""
    workers: int
    """The workers that the job's reservation holds, those that are leaving included."""
    least: int
    """The least number of workers. A plan never goes below it."""
    wanted: int
    """The number of workers that the job's owner wants."""
    most: int
    """The most workers. Idle growth never goes above it."""
    unit: Amounts
    """What one worker uses."""
    step: int = 1
    """Sizes change by multiples of this number."""
    idle: int = 0
    """How many of the workers are idle growth, for which the queue has not paid."""
    autoscale: bool = False
    """Whether the job may grow into idle room, and gives back what it has above its least."""
    priority: int = 0
    submitted: float = 0.0
    busy: str = ""
    """The code of why the job cannot be resized now at all; empty: it can."""
    yields: bool = False
    """Whether the job gives idle growth back although it is busy."""
    resting_until: float = 0.0
    """Until when the job must not grow, because of its last resize. Giving back does not wait for it."""
    idle_seconds: float = 0.0
    """For how long the room must have been idle into which the job grows."""
    leaving: int = 0
    """How many of the workers are on their way out."""
    leaving_for: str | None = None
    """The digest of the waiting job to which the leaving workers are given back (`digest`), or what an earlier version
    has written in its place; None: they are for no job."""


def digest(key: JobKey) -> str:
    """Return a digest of a job's key. Whoever does not know the random uid in the key cannot tell the job from it."""
    return hashlib.sha256(str(key).encode()).hexdigest()[:32]


class Resize(NamedTuple):
    """A change of one job's number of workers."""

    key: JobKey
    workers: int
    """The number of workers after the change."""
    reason: Reason
    for_key: JobKey | None = None
    """The waiting job to which the workers are given back."""
    for_queue: str = ""
    """The queue of that job."""
    message: str = ""
    """A sentence for the job's owner: to whom it gives back, or why it grows."""
    victims: tuple[str, ...] = ()
    """The names of the workers that leave before others, because of their nodes."""


class Kept(NamedTuple):
    """An elastic job that is not resized, and why."""

    key: JobKey
    code: KeptCode
    sentence: str


class Since(NamedTuple):
    """An amount that has been free without a break."""

    amount: int
    since: float


IdleRoom = Mapping[tuple[str, str], tuple[Since, ...]]
"""By a limit and a resource, how much has been free of every claim, and since when; the largest amount last, which is
the latest. The name of the pool's limit is empty, that of a queue is `queue:NAME`, of a cohort `cohort:NAME`; of the
nodes with a place condition it is `nodes:CONDITION`, and the resource is what one pod asks for."""

NO_IDLE_ROOM: IdleRoom = MappingProxyType({})
"""What is known before the first plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What changes now."""

    resizes: tuple[Resize, ...] = ()
    """At most one per job."""
    claims: Mapping[str, JobKey] = field(default_factory=lambda: MappingProxyType({}))
    """By queue, its first job for which room is given back now, or is on its way already. Other jobs of the queue must
    leave that room. A claim that is missing here has ended."""
    hasten: Mapping[str, JobKey] = field(default_factory=lambda: MappingProxyType({}))
    """By queue, its first job that lacks room in the pool, and whose patience ends at once: only idle growth keeps it
    out, or it has waited for long enough and paid workers make room for it."""
    nodes: PromisedNodes | None = None
    """The nodes on which the job finds room that holds the pool's reservation, or gets it next, once others have given
    workers back; None: there is no such job, or its nodes are not known."""
    patient_until: float = -math.inf
    """Until when time alone may let a waiting job take workers, in seconds since 1970."""
    needed: frozenset[JobKey] = frozenset()
    """The jobs with workers on their way out which a waiting job still needs. A target of any other job to give back
    can be taken back while no worker has begun with it."""
    kept: tuple[Kept, ...] = ()
    """The jobs that are not resized, if the caller asked for them."""
    idle_since: IdleRoom = field(default_factory=lambda: NO_IDLE_ROOM)
    """What the next plan must be given."""
    seen: frozenset[str] = frozenset()
    """The queues that plans have looked at since each queue had its turn, which the next plan must be given; empty if
    no queue waits for its turn."""
