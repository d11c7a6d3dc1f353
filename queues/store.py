"""What the coordinator asks of the place that holds the queues.

One rule: the store decides nothing. It keeps entries and reservations, and applies picks one by one, each wholly or not
at all.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from crds.keys import JobKey
from crds.resources.amounts import Amounts
from queues.inspection_values import StorePicture
from queues.values import Batch, Behind, Committed, Entry, Place, QueueSpec, Reservation, Snapshot


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """What a store must know beyond the queues."""

    ports: tuple[int, int] | None = None
    """First and last port to give to admitted jobs that ask for one; None: none are given."""
    counted: frozenset[str] = frozenset()
    """Names of resources whose usage is counted though no limit names them (see `queues.picking.counted`)."""

    def __post_init__(self) -> None:
        """ValueError for a range that is none."""
        if self.ports is not None and not 0 < self.ports[0] <= self.ports[1] < 65536:
            raise ValueError(f"ports {self.ports[0]}-{self.ports[1]} are not a range of ports")


class PendingCommit(Protocol):
    """A commit in steps, each done once and in this order. What a commit raises may be raised by any of them.

    Another one may begin before this one is done, if its batch `follows` this one's name: they are done in that order,
    and if this one does not stand whole, nothing of the other is.
    """

    @property
    def name(self) -> str:
        """What nobody else is called."""

    def begin(self, change: int) -> None:
        """Begin it. `change` counts for the batch's own: what the chooser knows by now, unless it follows another."""

    def outcome(self) -> Committed:
        """Wait until it is done. Says everything but the reservations and what is shown."""

    def reservations(self) -> tuple[Reservation, ...]:
        """The reservations, for which nobody has to wait any more."""

    def shown(self) -> tuple[Behind, ...]:
        """The same for what is shown."""


class QueueStore(Protocol):
    """Waiting entries and reservations of every tenant queue. Every method may raise `queues.errors.QueueError`.

    As long as there is no epoch, everything but `epoch`, `rebuild`, `inspect` and `forget` raises StoreLost.
    """

    def epoch(self) -> int:
        """The epoch of the last rebuild; 0 if the store is empty or lost."""

    def incarnation(self) -> str:
        """Which run of the server answers; empty if it does not say. One that was started again since, or that took a
        dead one's place, may not know what was done last."""

    def prepare(self, epoch: int, entries: Iterable[Entry]) -> None:
        """The first part of a rebuild that has to wait before it can go on: what waits is told already. The store is
        lost until `rebuild` under the same epoch says what has become of it since. StaleEpoch as there."""

    def rebuild(self, epoch: int, reservations: Iterable[Reservation], entries: Iterable[Entry]) -> None:
        """Replace all entries and reservations by what the cluster says, and open the store under a higher epoch.
        Unstorable if one of them cannot be kept (`codec.check`).

        Charges all reservations, also beyond quota and pool; settings and accounts stay. StaleEpoch if the epoch is not
        higher. From now on this object speaks for that epoch: once there is a higher one, what it asks for is refused
        with StaleEpoch.
        """

    def configure(self, queues: Collection[QueueSpec], pool: Amounts | None) -> None:
        """Set all queues and the pool. Raises the revision only if something changed.

        What waits in a queue that is missing stays, and waits until it is there again; its account stays
        while it is ahead of its share.
        """

    def put(self, entries: Iterable[Entry]) -> None:
        """Let jobs wait, or change how they wait (queue, priority, demand). Unstorable if one of the entries cannot be
        kept (`codec.check`): then none is put.

        A job that holds a reservation is left alone, except by an entry of kind "grow"; one that holds none is left
        alone by that kind. An entry's version rises only when its content changes. A job that waits already keeps the
        place among jobs of one score that it had when it was put first (`queues.order.tie`).
        """

    def remove(self, keys: Iterable[JobKey], seen: int | None = None) -> list[JobKey]:
        """Jobs that wait no longer and hold nothing: forget the entries, free charges and ports. Safe to repeat.

        `seen` is the newest resourceVersion of pods that the caller knows of. Returned are the keys whose reservation
        was kept, because there may be pods of which the caller has not heard: a worker is at work on the key, made a
        pod later than that, or was cut short and nobody has looked since. None frees them whatever there may be.
        """

    def snapshot(
        self, heads: int, since: int | None = None, more: Collection[str] = (), known: Mapping[str, int] | None = None
    ) -> Snapshot:
        """The state for `choose`, with up to `heads` waiting entries of each configured queue. Changes nothing, and
        needs no right to write.

        With `since`, the `change` of a snapshot or of a commit that stood alone, it is a difference: the queues that
        changed after it, and those named in `more`. It is whole all the same if it cannot be one: the settings or the
        epoch are others, or the store does not know that change.

        `known` is how many of a queue's first entries the caller knows, after its own commits: if nothing else changed
        in that queue, only the next ones are shown. To who gives it, though nothing be in it, a queue that changed may
        show fewer entries than it could: those before the first that this object has not been shown yet.
        """

    def commit(self, batch: Batch) -> Committed:
        """Per pick and in order: check epoch, revision, entry version, quota, pool and port; then charge, reserve, and
        mark the key as work. The first pick that fails ends the batch; the earlier ones stand. If none fails, the
        queues that the batch is hungry for are shown as they are then. Nothing is taken of a batch that follows
        another commit than the last one, or one that did not stand whole."""

    def pending_commit(self, batch: Batch) -> PendingCommit:
        """The same in steps, between which others can be done."""

    def place(self, key: JobKey) -> Place | None:
        """Where a job stands that waits; None if it does not. Needs no right to write."""

    def reservations(self, keys: Sequence[JobKey] | None = None) -> dict[JobKey, Reservation]:
        """The reservations held, all or of these keys."""

    def held(self) -> dict[JobKey, Reservation]:
        """All reservations under whatever epoch there is: what a leader begins with, also one whose own last epoch is
        over."""

    def inspect(self) -> StorePicture:
        """What it holds, for comparing; also of a store that is lost. Changes nothing."""

    def forget(self, epoch: int) -> None:
        """Lose what a rebuild brings back, and everything that cannot be read or belongs to nothing; settings and
        accounts stay. The store is lost from the first moment. Safe to repeat. StaleEpoch if somebody rebuilds or
        rebuilt under a higher epoch than `epoch`, the caller's; nothing is lost from then on."""
