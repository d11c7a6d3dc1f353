"""The values of the queues: entries that wait, reservations, snapshots, picks and commits.

One rule: all are frozen and carry keys and numbers only, never a manifest. The values that every pick makes are named
tuples, which cost a quarter of a frozen dataclass to make.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

from crds.keys import JobKey
from crds.resources import amounts
from crds.resources.amounts import NOTHING, Amounts
from queues.placement.gangs import Gang

Kind = Literal["admit", "grow"]
"""The request of an entry: the admission of a whole job, or more room for an admitted job (elastic)."""
Refusal = Literal["", "predecessor", "revision", "entry", "reservation", "quota", "cohort", "pool", "port"]
"""The reason why a commit stopped:

    (empty)            it did not stop
    predecessor        the commit that it follows was not the last one, or did not stand whole
    revision, entry    the settings or the entry changed since the snapshot
    reservation        the job has a reservation already; or, for the kind "grow", it has none
    quota, cohort      the quota of the job's queue, or the queue's cohort, has no room left
    pool, port         the pool has no room left, or no port is free
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A job that waits in a tenant queue."""

    key: JobKey
    queue: str
    kind: Kind = "admit"
    submitted: float
    """The time of submission in seconds since 1970. It survives suspensions of the job and restarts of any process."""
    sequence: str = field(default="", compare=False)
    """The order among the jobs that were created in the same second (`crds.torchjob.submission_order`); empty: none. A
    store reads it only when it puts a job that does not wait yet, and never returns it."""
    priority: int = 0
    attempt: int = 1
    """The attempt number of the job's next admission."""
    demand: Amounts = field(default_factory=lambda: NOTHING)
    """The amounts that the job uses of its queue's quota and of the pool while it is admitted; `jobs`: 1 included."""
    returning: bool = False
    """Whether the job lost a reservation because its queue was drained or it was resized, and requests no more than
    before. Such a job goes before jobs that were never admitted, unless those are much older (`queues.order`)."""
    port: bool = False
    """Whether the job needs a port while it is admitted."""
    size: int = 0
    """The number of workers that `demand` covers; 0: the job's workers are not counted."""
    unit: Amounts = field(default_factory=lambda: NOTHING)
    """What one further worker adds to the demand."""
    most: int = 0
    """The most further workers that a pick may give, apart from those of `size`."""
    step: int = 1
    """A pick gives a multiple of this number of further workers."""
    grown: int = 0
    """For the kind "grow", the reservation's number of growths at the request; the entry counts only while it is so."""
    idle: int = 0
    """For the kind "grow", the number of workers that the job has, and for which the queue pays with this entry
    (`Reservation.idle`). Such an entry demands nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """The room of one admitted job. Its charge counts against the queue and the pool until the reservation is freed."""

    key: JobKey
    queue: str
    kind: Kind = "admit"
    attempt: int
    epoch: int
    charge: Amounts
    pick: int = 0
    """The number of the pick; 0: unknown. Sorted by epoch and pick, reservations are in the order of admission."""
    port: int = 0
    """The port of the job; 0 if the job needs none."""
    size: int = 0
    """The number of workers that the charge covers; 0: the job's workers are not counted."""
    grown: int = 0
    """The number of growths since the admission. A growth that was requested under another number does not count."""
    idle: int = 0
    """The number of workers that are idle growth: the charge covers them, but the queue has not paid for them."""
    paid: int = 0
    """What the queue has paid for the last pick or growth; 0 once a part of the charge was given back."""
    gained: int = 0
    """The number of workers of the last growth, if the queue has paid for it."""
    nodes: str = ""
    """Where its pods were placed (`queues.placement.pod_nodes`); empty if that is not known, or not any more."""

    def serves(self, queue: str, demand: Amounts, *, port: bool) -> bool:
        """Return whether it matches the job's present request, which a user may have edited since the pick."""
        return self.queue == queue and self.charge == demand and (self.port != 0 or not port)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """The settings of a tenant queue."""

    name: str
    weight: int = 1
    open: bool = True
    """Whether jobs are picked from the queue. While the queue is on hold it is False; running jobs continue."""
    quota: Amounts = field(default_factory=lambda: NOTHING)
    """The limits by canonical resource name, `jobs` included. A missing name is unlimited."""
    cohort: str = ""
    """The cohort of the queue; empty: none. Queues of one cohort lend each other the quota that they do not use."""
    borrowing: Amounts = field(default_factory=lambda: NOTHING)
    """The most that the queue may use beyond its quota, by name. A missing name is limited only by the cohort."""
    strict: bool = False
    """Whether the queue is StrictFIFO: no job goes before the first one. Otherwise jobs that fit may."""
    aging_seconds: float = 600.0
    """The seconds of age that one step of priority is worth."""


class WaitingEntry:
    """An entry in a snapshot, with the version that a commit checks."""

    __slots__ = ("_entry", "demand", "gang", "placeable", "port", "queue", "ticket", "version")

    def __init__(self, entry: Entry, version: int) -> None:
        self.gang: Gang | None = None  # the pods that need nodes; None: not known, or nodes do not matter
        self.placeable = True  # whether the nodes could hold them if they were empty
        self._entry: Entry | None = entry
        self.version, self.queue, self.demand, self.port = version, entry.queue, entry.demand, entry.port
        self.ticket: tuple[str, int, Kind] = (str(entry.key), entry.attempt, entry.kind)  # as a commit sends them

    @property
    def size(self) -> int:
        """The number of workers that the demand covers (`Entry.size`)."""
        return self.entry.size

    @property
    def most(self) -> int:
        """The most further workers that a pick may give (`Entry.most`)."""
        return self.entry.most

    @property
    def idle_demand(self) -> Amounts:
        """The amounts of the idle workers for which the queue pays with the entry (`Entry.idle`)."""
        return amounts.scale(self.entry.unit, self.entry.idle)

    def demand_with(self, units: int) -> Amounts:
        """Return the demand with a number of further workers."""
        return amounts.add(self.demand, amounts.scale(self.entry.unit, units)) if units else self.demand

    @property
    def entry(self) -> Entry:
        """The whole entry."""
        if self._entry is None:
            self._entry = self._decode_entry()
        return self._entry

    def _decode_entry(self) -> Entry:
        """Return the entry of an object that was made without an entry."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WaitingEntry) and (self.version, self.entry) == (other.version, other.entry)

    def __hash__(self) -> int:
        return hash((self.version, self.queue))

    def __repr__(self) -> str:
        return f"Waiting({self.entry!r}, version={self.version})"


class Account(NamedTuple):
    """The service that a queue has received (`queues.picking.fair_share`)."""

    base: int = 0
    """The service of the queue, in 1/`queues.picking.fair_share.UNIT` of cost."""
    weight: int = 0
    """The weight with which the queue counted last; 0: it neither contended nor was ahead of its share."""
    largest: int = 0
    """The largest cost of a pick since the queue was even, or what it was ahead by as it last paid for kept room."""


ACCOUNT_SCHEME = "lag"
"""The name of what accounts and clock mean now, before their unit. Accounts under another name are ignored."""


class Clock(NamedTuple):
    """The sums that change the lag of every queue with each pick, so that a pick writes only one account."""

    served: int = 0
    """The sum of the bases of all accounts that have a weight."""
    weights: int = 0
    """The sum of their weights."""
    scheme: str = ACCOUNT_SCHEME
    """The name of the meaning of the numbers here and in the accounts."""


NEW_ACCOUNT = Account()
FIRST_CLOCK = Clock()
NO_ACCOUNTS: Mapping[str, Account] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class OvertakenJob:
    """A job that had no room at its turn: how often and since when others went first (0 times: it has a claim)."""

    key: JobKey
    times: int
    since: float
    kept: Amounts | None = None
    """The demand for which the pool keeps room; None: it does not."""
    kept_since: float = 0.0
    """Since when the pool keeps that room, in seconds since 1970; 0: not known."""
    paid: float = 0.0
    """The moment until which the queue has paid for that room, in seconds since 1970."""
    vain: int = 0
    """How often room was kept for the job until the queue had paid as much as it may, and in vain."""
    late: bool = False
    """Whether no job of its queue passes it any more that takes what it needs."""
    impatient: bool = False
    """Whether its patience towards other queues has ended before its time."""
    claimed: bool = False
    """Whether it has an open claim, which is like `late` but may end (`queues.picking.open_claims`)."""
    collected_until: float = 0.0
    """Until when its cohort collects what it asks for (`queues.picking.collected_room`); 0: the cohort does not."""
    uncollected: int = 0
    """How often that was in vain for first jobs of the queue, since one of them began with what was collected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSnapshot:
    """The state of a queue at the time of a snapshot."""

    spec: QueueSpec
    usage: Amounts
    """The sum of the charges of its reservations."""
    waiting: int
    """The number of entries that wait in the queue."""
    heads: tuple[WaitingEntry, ...]
    """The first waiting entries in order."""
    account: Account = NEW_ACCOUNT
    overtaken: OvertakenJob | None = None
    """The last job of this queue that was overtaken. It counts only while that job is the head."""
    after: int = 0
    """The number of entries before `heads` that are left out, because the caller knows them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state from which picks are chosen, read in one atomic step; or its changes since an earlier snapshot."""

    epoch: int
    revision: int
    """The revision of the settings (weights, quotas, pool). A commit of an older revision is refused."""
    pool: Amounts | None
    """The capacity that all queues share; None: it is unlimited."""
    pool_usage: Amounts
    clock: Clock = FIRST_CLOCK
    queues: tuple[QueueSnapshot, ...]
    """All configured queues, by name; in a difference, the queues that changed or were requested."""
    change: int = 0
    """The number of the last change in it. Each change of a queue's entries or usage has a higher number."""
    whole: bool = True
    """Whether it has every queue. A difference has the settings of the snapshot before it."""
    departed: Mapping[str, Account] = field(default_factory=lambda: NO_ACCOUNTS)
    """In a whole snapshot, the accounts with a weight of queues that are not configured any more."""


NONE_OVERTAKEN: Mapping[str, OvertakenJob | None] = MappingProxyType({})


class Pick(NamedTuple):
    """One decision: this job is admitted next, at this cost."""

    waiting: WaitingEntry
    cost: int
    """The cost, in the unit of the setting `cost` (`queues.picking.prices`)."""
    clock: Clock
    """The clock after this pick."""
    accounts: Mapping[str, Account]
    """The accounts after this pick, of every queue whose account it changes."""
    overtaken: Mapping[str, OvertakenJob | None] = NONE_OVERTAKEN
    """The records of queues whose head had its turn before this pick but no room; None: the record is deleted."""
    units: int = 0
    """The number of further workers that the pick gives (`Entry.most`)."""
    nodes: str = ""
    """Where the pods were placed (`Reservation.nodes`)."""

    @property
    def charge(self) -> Amounts:
        """The amounts that the pick charges."""
        return self.waiting.demand_with(self.units)

    @property
    def size(self) -> int:
        """The number of workers that the charge covers; 0 if workers are not counted."""
        return self.waiting.size + self.units


class Settlement(NamedTuple):
    """A change without a pick: room is reserved for a job, or a queue pays for the time for which it was."""

    clock: Clock | None
    """The clock after the change; None if no queue pays."""
    accounts: Mapping[str, Account]
    """The accounts of the queues that pay, and of those that began or ceased to contend since the last pick."""
    overtaken: Mapping[str, OvertakenJob | None]
    """The records of these queues' first jobs; None: the record is deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Picks in order, valid for one snapshot. A commit takes all picks of a batch, or the first picks."""

    epoch: int
    revision: int
    picks: tuple[Pick, ...]
    settlement: Settlement | None = None
    """The change after the last pick, if all picks stand."""
    change: int = 0
    """The last change that the picker knew. If the batch follows another commit, that one's change counts instead."""
    follows: str = ""
    """The name of the commit that must be the last one and stand whole; empty: any commit."""
    heads: int = 0
    """The number of entries to return of each queue in `needs_entries`."""
    needs_entries: Mapping[str, int] = field(default_factory=lambda: NOTHING)
    """Queue -> the number of its first entries that the picker knows, without the picks of this batch. If all picks
    stand, the commit returns the next entries of these queues."""


class NextEntries(NamedTuple):
    """The entries of a queue after the first entries, at the time of a commit."""

    queue: str
    after: int
    """The number of entries before `heads`, which the caller knows."""
    waiting: int
    """The number of entries that wait in the queue."""
    heads: tuple[WaitingEntry, ...]


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The result of a commit: the reservations of the picks that stand, and the reason if a pick was refused."""

    reservations: tuple[Reservation, ...]
    refused: Refusal = ""
    change: int = 0
    """The number of this commit's change."""
    alone: bool = False
    """Whether nothing else changed since the batch's `change`. Then the picker knows all changes up to `change`."""
    others: tuple[str, ...] = ()
    """The queues that other requests changed since the batch's `change`, if the store remembers that change. The picker
    knows all changes up to `change` but those of these queues."""
    next_entries: tuple[NextEntries, ...] = ()
    """The next entries of the queues in the batch's `needs_entries`, as of `change`. They may be missing."""
    picked: int = 0
    """The number of picks that stand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePosition:
    """The position of a waiting job in its queue."""

    entry: Entry
    rank: int
    """The number of jobs of its queue that are before it."""
    waiting: int
    """The number of jobs that wait in its queue, itself included."""
