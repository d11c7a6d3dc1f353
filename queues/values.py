"""The values of the queue room: who waits, who holds a reservation, what a pick is.

One rule: all are frozen and carry keys and numbers only, never a manifest.

Those of which every pick makes some are tuples with names, which cost a quarter of a frozen dataclass to make.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

from crds.keys import JobKey
from crds.resources.amounts import NOTHING, Amounts

Kind = Literal["admit", "grow"]
"""What an entry asks for: a whole job's admission, or more room for an admitted one (elastic)."""

Refusal = Literal["", "predecessor", "revision", "entry", "reservation", "quota", "cohort", "pool", "port"]
"""Why a commit stopped: nothing did; the commit that it follows was not the last one, or did not stand whole; the
settings or the entry changed since the snapshot; the job holds a reservation already (or, to grow, none); its queue's
quota, the queue's cohort or the pool has no room left; no port is free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One job waiting in a tenant queue."""

    key: JobKey
    queue: str
    kind: Kind = "admit"
    submitted: float
    """Seconds since the epoch; the job's age, kept over suspensions and restarts of anything."""
    sequence: str = field(default="", compare=False)
    """Its place among the jobs that were created in the same second (`crds.torchjob.submission_order`); empty: it has
    none. A store
    reads it once, when it puts a job that does not wait yet, and does not give it back."""
    priority: int = 0
    attempt: int = 1
    """The number the next admission of this job will carry."""
    demand: Amounts = field(default_factory=lambda: NOTHING)
    """What the job takes from its queue's quota and the pool while admitted; includes `jobs`: 1."""
    returning: bool = False
    """It held room, gave it back because its queue was drained or its size was changed, and asks for no more than it
    held: it goes before everything that was never admitted and is not far older (`queues.order`)."""
    port: bool = False
    """Whether a port has to be held for it while it is admitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Room taken for one job: the charge is counted against queue and pool until it is released."""

    key: JobKey
    queue: str
    kind: Kind = "admit"
    attempt: int
    epoch: int
    charge: Amounts
    pick: int = 0
    """The number of the pick: by epoch and pick, reservations are in the order of admission. 0 if nobody knows."""
    port: int = 0
    """The port held for the job, if it asked for one; else 0."""

    def serves(self, queue: str, demand: Amounts, *, port: bool) -> bool:
        """Whether this is the room that a job asks for as it is now: its owner may have edited it since the pick."""
        return self.queue == queue and self.charge == demand and (self.port != 0 or not port)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """A tenant queue as its admin wants it."""

    name: str
    weight: int = 1
    open: bool = True
    """False while the queue is on hold: nothing is picked from it, what runs goes on."""
    quota: Amounts = field(default_factory=lambda: NOTHING)
    """Limits by canonical name, `jobs` among them; a name that is missing is unlimited."""
    cohort: str = ""
    """Queues of one cohort lend each other the quota they do not use; empty: the queue is in none."""
    borrowing: Amounts = field(default_factory=lambda: NOTHING)
    """The most the queue may hold beyond its quota, by name; a name that is missing has no limit but the cohort's."""
    strict: bool = False
    """StrictFIFO: nothing goes before the first job. Otherwise jobs that fit may pass one that does not, so often."""
    aging_seconds: float = 600.0
    """How many seconds of age one step of priority is worth."""


class Waiting:
    """An entry as a snapshot shows it, with the version that a commit checks."""

    __slots__ = ("_entry", "demand", "port", "queue", "ticket", "version")

    def __init__(self, entry: Entry, version: int) -> None:
        self._entry: Entry | None = entry
        self.version = version
        self.queue = entry.queue
        self.demand = entry.demand
        self.port = entry.port
        self.ticket: tuple[str, int, Kind] = (str(entry.key), entry.attempt, entry.kind)
        """What else a commit says of it: key, attempt, kind."""

    @property
    def entry(self) -> Entry:
        """All of it."""
        if self._entry is None:
            self._entry = self._spelled_out()
        return self._entry

    def _spelled_out(self) -> Entry:
        """The entry of one that was made without."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Waiting) and (self.version, self.entry) == (other.version, other.entry)

    def __hash__(self) -> int:
        return hash((self.version, self.queue))

    def __repr__(self) -> str:
        return f"Waiting({self.entry!r}, version={self.version})"


class Account(NamedTuple):
    """What a queue was served, as the store keeps it, written only when a pick concerns the queue
    (`queues.picking.fair_share`
    reads it)."""

    base: int = 0
    """What the queue was served, in 1/`queues.picking.fair_share.UNIT` of cost."""
    weight: int = 0
    """The weight with which the queue counted after the last pick; 0: it neither contended nor was ahead of its
    share."""
    largest: int = 0
    """The largest job it was picked with since it was last even or behind."""


LAW = "lag"
"""The name of what accounts and clock mean by now."""


class Clock(NamedTuple):
    """What moves the lags of all queues at once, so that a pick writes one account."""

    served: int = 0
    """The sum of the bases of all accounts that have a weight."""
    weights: int = 0
    """The sum of their weights."""
    law: str = LAW
    """What the numbers here and in the accounts mean; accounts under another name count for nothing."""


UNTOUCHED = Account()
BEGINNING = Clock()
NO_ACCOUNTS: Mapping[str, Account] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Overtaken:
    """A job that had its turn but not its room: how often others went first, and since when."""

    key: JobKey
    times: int
    since: float
    kept: Amounts | None = None
    """What the job asked for when the pool's room was first kept for it, which its queue pays for if the job is
    withdrawn; None: no room was kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """A queue at the moment of a snapshot."""

    spec: QueueSpec
    usage: Amounts
    """Sum of the charges of its reservations."""
    waiting: int
    """How many entries wait in it."""
    heads: tuple[Waiting, ...]
    """The first waiting entries in order."""
    account: Account = UNTOUCHED
    overtaken: Overtaken | None = None
    """The last job of this queue that others overtook; counts only while it is the head."""
    after: int = 0
    """How many entries are before `heads` that are not shown, because who asked knows them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything `choose` needs, read in one atomic step; or what of it has changed since an earlier one."""

    epoch: int
    revision: int
    """Rises with every change of settings (weights, quotas, pool); a commit of an older revision is refused."""
    pool: Amounts | None
    """The capacity all queues share; None means that nothing is scarce."""
    pool_usage: Amounts
    clock: Clock = BEGINNING
    queues: tuple[QueueView, ...]
    """All configured queues, by name; if it is not whole, those that changed or were asked for."""
    change: int = 0
    """The number of the last change that it shows; rises with everything that changes a queue's entries or usage."""
    whole: bool = True
    """Whether it shows every queue. A difference shows no other settings than the snapshot it follows."""
    departed: Mapping[str, Account] = field(default_factory=lambda: NO_ACCOUNTS)
    """The accounts with a weight of queues that are not configured any more, if it is whole."""


NOBODY: Mapping[str, Overtaken | None] = MappingProxyType({})


class Pick(NamedTuple):
    """One decision of `choose`: this job goes next, at this price."""

    waiting: Waiting
    cost: int
    """k: 1, or the amount of the resource the admin counts by."""
    clock: Clock
    """The clock after this pick."""
    accounts: Mapping[str, Account]
    """Accounts after this pick of every queue whose account changed with it."""
    overtaken: Mapping[str, Overtaken | None] = NOBODY
    """Queues whose head had its turn before this pick but found no room in the pool; None: the queue's record ends."""


class Settlement(NamedTuple):
    """What changes without a pick: room is kept for a job, or a queue pays for room that was kept in vain."""

    clock: Clock | None
    """The clock afterwards; None if no queue pays."""
    accounts: Mapping[str, Account]
    """Accounts of the queues that pay, and of those that have come or gone since the last pick."""
    overtaken: Mapping[str, Overtaken | None]
    """What is recorded of these queues' first jobs; None: nothing any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Picks in order, valid against one snapshot. Commit takes a prefix of them."""

    epoch: int
    revision: int
    picks: tuple[Pick, ...]
    settlement: Settlement | None = None
    """What changes after the last pick, if all of them stand."""
    change: int = 0
    """The last change that the chooser knew of. If it follows another commit, the change that this one was counts."""
    follows: str = ""
    """The name of the commit that must have been the last one, and must stand whole; empty: whatever was before."""
    heads: int = 0
    """How many entries to show of each queue in `hungry`."""
    hungry: Mapping[str, int] = field(default_factory=lambda: NOTHING)
    """Queues of which more entries are to be shown, if all picks stand; and how many of its first ones, picks of this
    batch left out, the chooser knows of each."""


class Behind(NamedTuple):
    """The entries of a queue behind the first ones, at the moment of a commit."""

    queue: str
    after: int
    """How many are before `heads`, because who asked knows them."""
    waiting: int
    """How many entries wait in it."""
    heads: tuple[Waiting, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """What became of a batch: the reservations as they are now, and what refused the first pick that was refused."""

    reservations: tuple[Reservation, ...]
    refused: Refusal = ""
    change: int = 0
    """The number of the change that this commit was."""
    alone: bool = False
    """Whether nothing else changed since the batch's `change`: whoever chose it knows all up to `change`."""
    others: tuple[str, ...] = ()
    """The queues that somebody else changed since, if it was not alone and the store knows that change: whoever chose
    the batch knows all up to `change` but those."""
    shown: tuple[Behind, ...] = ()
    """The queues in the batch's `hungry`, as they are at `change`. May be missing, as if nobody had asked."""
    picked: int = 0
    """How many picks stand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a waiting job stands."""

    entry: Entry
    rank: int
    """How many jobs of its queue are before it in the order."""
    waiting: int
    """How many wait in its queue, itself included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A key that somebody should look at."""

    key: JobKey
    tenant: str
    """Whose turn it uses in the work queue: a queue or a namespace that an admin has made
    (`coordinator.routing.route.tenant`),
    never a name that users invent."""
    seen: int = 0
    """The newest resourceVersion the coordinator saw for the key's pods; a worker's cache must have reached it."""
    delay: float = 0.0
    """Seconds to wait first; an offer without delay overtakes it."""
    version: int = 0
    """The job's resourceVersion, if that the job or its pods have changed is all there is to look at: then no run is
    needed that a run of just now has settled (`WorkSink.finish`). 0: there is another reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A key leased to a worker."""

    key: JobKey
    token: str
    """The fence: whoever holds another token for the key has lost it."""
    tenant: str
    seen: int
    failures: int
    """Runs in a row that ended in an error, for the backoff."""
    reservation: Reservation | None
