"""What the queues hold, as somebody sees who compares it with the cluster.

One rule: looking changes nothing and needs no right to write. What is read at different moments may not fit together;
whoever compares looks twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from crds.keys import JobKey
from crds.resources.amounts import Amounts
from queues.values import Entry, QueueSpec, Reservation


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """Something in Redis that cannot be read."""

    where: str
    """The Redis key, and after a space the field."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePicture:
    """A queue store. Reservations, usage and ports are of one moment; entries and places are not."""

    epoch: int = 0
    """0: the store is lost."""
    rebuilding: int = 0
    """The epoch of a rebuild under way; 0 if there is none."""
    specs: Mapping[str, QueueSpec] = field(default_factory=dict)
    pool: Amounts | None = None
    entries: Mapping[JobKey, Entry] = field(default_factory=dict)
    places: Mapping[str, Mapping[JobKey, float]] = field(default_factory=dict)
    """Queue -> the jobs in its order, with their scores."""
    stray_places: Mapping[str, frozenset[JobKey]] = field(default_factory=dict)
    """Queue -> the jobs that have a place in its order which is not the one of their entry (`order.tie`)."""
    reservations: Mapping[JobKey, Reservation] = field(default_factory=dict)
    usage: Mapping[str, Amounts] = field(default_factory=dict)
    """Queue -> what the store counts as used; a queue that uses nothing may be missing."""
    pool_usage: Amounts = field(default_factory=dict)
    counted: frozenset[str] | None = None
    """The names of resources that the usage counts (see `queues.limits`); None: all."""
    ports: Mapping[int, JobKey] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    unknown: tuple[str, ...] = ()
    """Names of keys under our prefixes that belong to nothing."""
    foreign: tuple[str, ...] = ()
    """Names of keys of somebody else in the same database; at most FOREIGN of them."""


FOREIGN = 10
"""How many keys of somebody else are worth naming."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkRecord:
    """One key that is not at rest, with its place in the lists that bring it back, read at one moment."""

    state: str
    """ready, delayed or leased."""
    tenant: str = ""
    since: str = ""
    """When it became ready; as text, to tell one wait from the next."""
    token: str = ""
    failures: int = 0
    due: float | None = None
    """When it is due, by the list of delayed keys; None if it is not in there."""
    lease_ends: float | None = None
    """When its lease ends, by the list of leases; None if it is not in there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RqJob:
    """A job in RQ."""

    id: str
    where: str
    """Which list of RQ it is in: queue, intermediate, started, failed, ...; none: it is in no list."""
    function: str
    """The function it names; empty if its record cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPicture:
    """A work queue and the RQ behind it. Lists and counts are of one moment, records of others."""

    now: float
    """The time by which leases end."""
    records: Mapping[JobKey, WorkRecord] = field(default_factory=dict)
    ready: Mapping[str, frozenset[JobKey]] = field(default_factory=dict)
    """Tenant -> its ready keys."""
    turns: frozenset[str] = frozenset()
    """The tenants that will have a turn."""
    ready_count: int = 0
    """How many keys are ready, by the counter that dispatch goes by."""
    ready_length: int = 0
    """How many keys are in the lists of ready keys."""
    leases: Mapping[JobKey, float] = field(default_factory=dict)
    """Every key in the list of leases, and when its lease ends."""
    workers: Mapping[str, float] = field(default_factory=dict)
    """Worker -> when its registration ends."""
    threads: frozenset[str] = frozenset()
    """The workers whose threads are counted."""
    rq: tuple[RqJob, ...] = ()
    faults: tuple[Fault, ...] = ()
