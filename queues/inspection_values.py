"""The contents of the queues as an inspection reads them, for a comparison with the cluster.

One rule: an inspection changes nothing and needs no right to write. Values of different moments may not fit together,
so a comparison reads twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from crds.keys import JobKey
from crds.resources.amounts import Amounts
from queues.registrations import Member
from queues.values import Entry, QueueSpec, Reservation
from queues.work_kinds import WorkKind


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """A value in Redis that cannot be read."""

    where: str
    """The Redis key; for a field of a hash, a space and the field after it."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreInspection:
    """The contents of a queue store. Reservations, usage and ports are of one moment; entries and places are not."""

    epoch: int = 0
    """The epoch of the last rebuild; 0 if the store is lost."""
    rebuilding: int = 0
    """The epoch of a rebuild under way; 0 if there is none."""
    unfit: str = ""
    """Why no leader may use the server, as far as the server tells; empty if one may."""
    owner: bytes = b""
    """The installation whose store this is, as it is stored (`queues.installation`); empty if it has none."""
    specs: Mapping[str, QueueSpec] = field(default_factory=dict)
    pool: Amounts | None = None
    entries: Mapping[JobKey, Entry] = field(default_factory=dict)
    places: Mapping[str, Mapping[JobKey, float]] = field(default_factory=dict)
    """By queue, the jobs in its order with their scores."""
    stray_places: Mapping[str, frozenset[JobKey]] = field(default_factory=dict)
    """By queue, the jobs whose place in its order is not that of their entry (`order.tie`)."""
    reservations: Mapping[JobKey, Reservation] = field(default_factory=dict)
    usage: Mapping[str, Amounts] = field(default_factory=dict)
    """By queue, what the store counts as used. A queue that uses nothing may be missing."""
    pool_usage: Amounts = field(default_factory=dict)
    counted: frozenset[str] | None = None
    """The resources that the usage counts (see `queues.limits`); None: all."""
    ports: Mapping[int, JobKey] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    unknown: tuple[str, ...] = ()
    """Redis keys under the prefixes of torchq that belong to nothing."""
    foreign: tuple[str, ...] = ()
    """Redis keys of other programs in the same database, at most FOREIGN of them."""


FOREIGN = 10
"""The most Redis keys of other programs that an inspection names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkRecord:
    """The record of one work key, with its entries in the lists of delayed and leased keys, read at one moment."""

    state: str
    """The state of the key: ready, delayed or leased."""
    tenant: str = ""
    kind: WorkKind = "begins"
    since: str = ""
    """When the key became ready, as text. It differs from one wait to the next."""
    token: str = ""
    failures: int = 0
    due: float | None = None
    """When the key is due, by the list of delayed keys; None if the list lacks it."""
    lease_ends: float | None = None
    """When the key's lease ends, by the list of leases; None if the list lacks it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RqJob:
    """A job in RQ."""

    id: str
    where: str
    """The list of RQ that has the job: queue, intermediate, started, failed, ...; none: no list has it."""
    function: str
    """The function that the job names; empty if its record cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkInspection:
    """The contents of a work queue and of its RQ. Lists and counts are of one moment, records are of other moments."""

    now: float
    """The time on the clock by which leases end."""
    records: Mapping[JobKey, WorkRecord] = field(default_factory=dict)
    ready: Mapping[str, frozenset[JobKey]] = field(default_factory=dict)
    """By lane (`queues.work_kinds.lane`), its ready keys."""
    turns: frozenset[str] = frozenset()
    """The lanes that will have a turn."""
    ready_count: int = 0
    """The number of ready keys, by the counter that dispatch uses."""
    ready_length: int = 0
    """The number of keys in the lists of ready keys."""
    leases: Mapping[JobKey, float] = field(default_factory=dict)
    """Every key in the list of leases, and when its lease ends."""
    members: tuple[Member, ...] = ()
    """The registered workers, also those of other layouts, by name."""
    rq: tuple[RqJob, ...] = ()
    faults: tuple[Fault, ...] = ()
