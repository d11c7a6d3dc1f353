"""The contract of the place that holds the queues: what the coordinator reads from the store and writes to the store.

One rule: the store decides nothing. The store keeps entries and reservations, and applies picks one by one, each wholly
or not at all.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from crds.keys import JobKey
from crds.resources.amounts import Amounts
from queues.inspection_values import StoreInspection
from queues.installation import Installation
from queues.values import (
    Batch,
    CommitResult,
    Entry,
    NextEntries,
    QueuePosition,
    QueueSpec,
    Refusal,
    Reservation,
    Snapshot,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredCharge:
    """The smaller charge of an admitted job that has fewer workers than before."""

    key: JobKey
    attempt: int
    grown: int
    """Nothing changes unless the reservation has this attempt and this number of growths."""
    size: int
    charge: Amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleGrowth:
    """Further workers for an admitted job, for which its queue does not pay."""

    key: JobKey
    attempt: int
    grown: int
    """Nothing changes unless the reservation has this attempt and this number of growths."""
    workers: int
    """The number of further workers."""
    charge: Amounts
    """What all of them add to the job's charge."""


class RaisedCharge(NamedTuple):
    """A charge that is higher than before, because the pods of a job ask for more than their templates."""

    queue: str
    before: Amounts
    after: Amounts


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The facts that a store must know beyond the queues."""

    ports: tuple[int, int] | None = None
    """The first and the last port for admitted jobs that ask for a port; None: jobs get no port."""
    counted: frozenset[str] = frozenset()
    """Names of resources whose usage is counted although no limit names them (see `queues.limits`)."""

    def __post_init__(self) -> None:
        """Raise ValueError unless `ports` is a range of ports."""
        if self.ports is not None and not 0 < self.ports[0] <= self.ports[1] < 65536:
            raise ValueError(f"ports {self.ports[0]}-{self.ports[1]} are not a range of ports")


class PendingCommit(Protocol):
    """A commit in steps. Each step is done once, in the order of the methods; each may raise the errors of a commit.

    The next commit may begin before this commit is done, if its batch `follows` the name of this commit. The store
    works on commits in the order of their beginning. If this commit does not stand whole, the store takes nothing of
    the next commit.
    """

    @property
    def name(self) -> str:
        """The unique name of this commit."""

    def begin(self, change: int) -> None:
        """Begin the commit. `change` replaces the batch's `change`: the last change that the picker knows by now. The
        argument has no effect if the batch follows another commit."""

    def outcome(self) -> CommitResult:
        """Wait until the commit is done. Return the result of the commit without the reservations and the next
        entries."""

    def reservations(self) -> tuple[Reservation, ...]:
        """Return the reservations. Call it after `outcome`; it does not wait."""

    def next_entries(self) -> tuple[NextEntries, ...]:
        """Return the next entries of the batch's `needs_entries` queues. Call it after `outcome`; it does not wait."""


class QueueReader(Protocol):
    """The reading side of a queue store: entries and reservations of every tenant queue.

    Every method may raise `queues.errors.QueueError`. While the store has no epoch, every method but `epoch`,
    `incarnation`, `seconds_since_move` and `inspect` raises StoreLost.
    """

    def epoch(self) -> int:
        """Return the epoch of the last rebuild; 0 if the store is empty or lost."""

    def incarnation(self) -> str:
        """Return the identity of the server process that answers; empty if the server does not tell its identity.

        A server that was restarted, or that replaced a dead one, has another identity. Such a server may have lost the
        last writes. The store of a leader raises StoreLost instead of the use of another server than the process that
        this method has named last.
        """

    def seconds_since_move(self) -> float:
        """Return how long ago the store began to be on another server than before, for this process; infinite if the
        store was on one server all the time."""

    def snapshot(
        self,
        heads: int,
        since: int | None = None,
        more: Collection[str] = (),
        known_heads: Mapping[str, int] | None = None,
    ) -> Snapshot:
        """Return the state from which picks are chosen, with up to `heads` waiting entries of each configured queue.
        The method changes nothing and needs no right to write.

        With `since` (the `change` of a snapshot, or of a commit that stood alone) the result is a difference. The
        difference has the queues that changed after `since`, and the queues in `more`. The result is a whole snapshot
        instead if the settings or the epoch have changed, or if the store does not remember the change of `since`.

        `known_heads` is the number of a queue's first entries that the caller knows, after its own commits. If nothing
        else changed in such a queue, the result has only the entries after the known entries. If `known_heads` is
        given, even empty, a changed queue may have fewer entries than `heads`: it ends before the first old entry that
        this object has not returned yet.
        """

    def find_others(self, queue: str, after: int, known: Collection[Amounts], looked_at: int, most: int) -> NextEntries:
        """Return up to `most` entries behind a queue's first `after` ones that ask for none of the `known` demands.

        The method looks at up to `looked_at` entries. `after` of the result is the number of the queue's first entries
        that need not be looked at again. Changes nothing and needs no right to write.
        """

    def place(self, key: JobKey) -> QueuePosition | None:
        """Return the position of a waiting job in its queue; None if the job does not wait. Needs no right to write."""

    def reservations(self, keys: Sequence[JobKey] | None = None) -> dict[JobKey, Reservation]:
        """Return all reservations, or the reservations of these keys."""

    def all_reservations(self) -> dict[JobKey, Reservation]:
        """Return all reservations, under any epoch. Every new leader begins with the reservations, even a leader whose
        own last epoch is over.
        """

    def inspect(self) -> StoreInspection:
        """Return the whole content for an inspection, also of a lost store. Changes nothing."""


class QueueWriter(Protocol):
    """The writing side of a queue store.

    Every method but `problem` may raise `queues.errors.QueueError`. While the store has no epoch, every method but
    `claim`, `problem`, `prepare`, `rebuild` and `forget` raises StoreLost.
    """

    def claim(self, installation: Installation) -> None:
        """From now on this object speaks for an installation. A rebuild makes it the owner of a store without an owner,
        and raises ForeignStore for a store with another owner."""

    def problem(self) -> str:
        """Return why a leader must not use this store now, as a sentence for an admin; empty if a leader may use the
        store.

        The server does not answer, takes no writes, or could lose a part of the writes. Or the store
        belongs to another installation than the one that this object speaks for.
        """

    def prepare(self, epoch: int, entries: Iterable[Entry]) -> None:
        """Begin a rebuild that cannot finish yet, and put the entries that wait already.

        The store is lost until `rebuild` under the same epoch brings the changes since then. Raises StaleEpoch under
        the conditions of `rebuild`."""

    def rebuild(self, epoch: int, reservations: Iterable[Reservation], entries: Iterable[Entry]) -> None:
        """Replace all entries and reservations by the entries and reservations of the cluster, and open the store under
        a higher epoch.

        Charges all reservations, also beyond quota and pool. Settings and accounts stay. Raises Unstorable if a value
        cannot be kept (`codec.check`), and StaleEpoch if the epoch is not higher.

        From now on this object speaks for that epoch. When another process has rebuilt under a higher epoch, the store
        refuses the requests of this object with StaleEpoch.
        """

    def configure(self, queues: Collection[QueueSpec], pool: Amounts | None) -> None:
        """Set all queues and the pool. Raises the revision only if a value changed.

        Entries of a queue that is not configured stay, and wait until the queue is configured again. The account of
        such a queue stays while the queue is ahead of its share.
        """

    def put(self, entries: Iterable[Entry]) -> None:
        """Add waiting jobs, or change how they wait (queue, priority, demand).

        Raises Unstorable if one of the entries cannot be kept (`codec.check`); then the store puts no entry.

        An entry of kind "grow" counts only for a job that holds a reservation in the same queue with the same number of
        growths, and with the idle workers that it pays for; an entry of another kind only for a job that holds no
        reservation. An entry's version rises only when its content changes. Among jobs of one score, a job keeps the
        place that it had when it was put first (`queues.order.tie`).
        """

    def remove(self, keys: Iterable[JobKey], pods_version: int | None = None) -> list[JobKey]:
        """Delete the entries and reservations of jobs, and free their charges and ports. Safe to repeat.

        `pods_version` is the newest resourceVersion of pods that the caller knows. The result lists the keys whose
        reservation stays, because the caller may not know all pods of the job. A reservation stays in three cases: a
        worker runs the key now; a worker has made a pod after `pods_version`; the last run was cut short, and no run
        has succeeded since. With None, the store frees every reservation.
        """

    def withdraw(self, keys: Iterable[JobKey]) -> None:
        """Delete the waiting entries of kind "grow" of jobs. Their reservations stay. Safe to repeat."""

    def lower(self, charges: Iterable[LoweredCharge], pods_version: int | None = None) -> list[JobKey]:
        """Lower the charges of admitted jobs, and free the differences. Safe to repeat.

        For each resource, the reservation keeps the smaller of its charge and the given charge; the reservation also
        keeps the smaller of its size and the given size. Idle workers are removed first (`Reservation.idle`). An entry
        that pays for more idle workers than are left is deleted. Nothing changes for a job whose reservation has
        another attempt or another number of growths.

        The result lists the keys whose charge stays, because the caller may not know all pods of the job. `remove`
        names the cases, and the meaning of `pods_version`."""

    def grow_idle(self, growths: Iterable[IdleGrowth], epoch: int, revision: int) -> list[Refusal]:
        """Give admitted jobs further workers for which their queues do not pay, and mark the keys as work.

        Each growth stands or is refused as a whole. The result has the reasons, in the order of the growths; empty: it
        stands. A growth is refused if

        - the settings have another revision ("revision"),
        - the job's reservation is missing, or has another attempt or number of growths ("reservation"),
        - the job has an entry: it waits for a growth that its queue pays ("entry"), or
        - quota, cohort or pool have no room.

        No account and no turn changes. Raises StaleEpoch and StoreLost as a commit under `epoch` does."""

    def pending_commit(self, batch: Batch) -> PendingCommit:
        """Return a commit of the batch. The commit has not begun; the caller runs its steps, and can do other work
        between the steps.

        The commit does the following per pick, in order. The store checks epoch, revision, entry version, quota, pool
        and port. Then the store charges, reserves, and marks the key as work. A pick of kind "grow" adds to the job's
        reservation, which must be in the entry's queue and have the entry's number of growths; the port stays. If the
        entry pays for idle workers, the reservation must have that number of idle workers, which is then subtracted.
        The first pick that fails ends the batch; the earlier picks stand. If no pick fails, the result has the next
        entries of the batch's `needs_entries` queues.

        The store takes nothing of a batch that follows another commit than the last one, or a commit that did not
        stand whole."""

    def forget(self, epoch: int) -> None:
        """Delete everything that a rebuild restores, and every value that is unreadable or belongs to nothing. Settings
        and accounts stay. Safe to repeat.

        The store is lost from the first step on. Raises StaleEpoch if a rebuild under a higher epoch than `epoch`, the
        caller's, has begun or is done; from then on the store deletes nothing."""


class QueueStore(QueueReader, QueueWriter, Protocol):
    """A queue store with both sides."""
