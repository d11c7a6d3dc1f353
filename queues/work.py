"""The contract of dispatch: a level-triggered work queue of keys.

One rule: at most one worker runs a key, and offers during a run cause exactly one more run. All offers while a key
waits collapse into one. A key whose worker died comes back when its lease ends.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from crds.keys import JobKey
from crds.resources.amounts import Amounts
from queues.inspection_values import WorkInspection
from queues.registrations import Registration, StoreIdentity
from queues.tasks import Offer, Task
from queues.values import Refusal

SETTLED_SECONDS = 10
"""How long the work queue remembers which version a run has settled. The events of the run's own writes arrive within
that time."""

BRIEF_SECONDS = 60
"""How long the work queue keeps a brief. A key that waits longer is read from the API server."""

Lease = tuple[JobKey, str]
"""A key and its fencing token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSettings:
    """The times of the work queue, in seconds, and its sizes."""

    dispatched_lease: float = 20.0
    """How long a batch may wait in RQ. After that its keys are dispatched again, and a worker that takes the batch
    finds that it has lost them. The keys also wait this long if a worker dies between taking a batch and beginning
    it."""
    running_lease: float = 15.0
    """How soon the keys of a dead worker come back. A worker renews its leases three times in that time."""
    longest_run: float = 120.0
    """A run that takes longer counts as hung, and its lease is not renewed. Several unanswered API requests fit into
    it."""
    registration: float = 15.0
    """How long a worker counts as alive after its last sign of life."""
    batch: int = 32
    """The most keys in one RQ job. Above this, RQ's cost per key no longer matters."""
    backoff_first: float = 0.1
    """The wait after the first failure."""
    backoff_cap: float = 60.0
    """The longest wait after a failure."""
    tenant_share: float = 0.0625
    """The part of all threads, rounded up to two at least, that the keys of one tenant hold at most while another has
    had keys, too. So a key of a tenant with few keys waits for no run of another tenant. Its own run shares the Python
    of the worker, and the API server, with few others: more of them at a time end hardly sooner."""
    tenant_seconds: float = 10.0
    """For how long a tenant counts as such another after a key of it was leased. A tenant that is alone longer has all
    threads."""
    batch_timeout: int = 120
    """How long RQ lets a batch wait for free threads. It is longer than the dispatched lease, after which the batch is
    void."""
    failed_batch_kept: int = 3600
    """How long RQ keeps the record of a batch that no worker took or whose worker died, for an inspection."""


def backoff(failures: int, settings: WorkSettings) -> float:
    """Return the seconds to wait after a number of failures in a row: 0.1, 0.2, 0.4 ... 60."""
    return min(settings.backoff_cap, settings.backoff_first * 2.0 ** min(failures - 1, 64))


class RunVersions(NamedTuple):
    """The resourceVersions that a finished run knew, for the next run of the key (`WorkSink.finish`)."""

    pods_version: int = 0
    """The newest resourceVersion of the job's pods that the run knew."""
    settled_version: int = 0
    """The job's resourceVersion at which the run found nothing left to do; 0 if there may be something."""


class WorkSource(Protocol):
    """The coordinator's side of the work queue."""

    def offer(self, offers: Iterable[Offer]) -> None:
        """Mark keys as work. A repeated offer has no effect while the key waits, unless its kind is more urgent.

        An offer with a `version` has no effect if a run has recently settled that version of the job or a later one,
        and knew the pods of the offer. "Recently" means within SETTLED_SECONDS. Raises StoreLost while the store has no
        epoch."""

    def drop(self, keys: Iterable[JobKey]) -> None:
        """Drop the keys of deleted jobs.

        A delayed key is forgotten, unless its last run failed: such a run may have left pods behind. A key that a
        worker runs is run once more, since the run may have begun before the deletion."""

    def brief(self, briefs: Mapping[JobKey, bytes]) -> None:
        """Keep these briefs for the next runs of their keys, at most BRIEF_SECONDS each. The first run that begins
        takes the brief of its key (`Task.brief`)."""

    def dispatch(self) -> int:
        """Make keys ready that are due or whose lease ended. Then lease ready keys, those that free room first, fairly
        over the tenants of each kind, and push them to the workers. Return how many keys were pushed.

        Of eight keys in a row, five go to ends first, two to those that begin and one to those that only tell. What a
        kind leaves goes to the most urgent that waits (`queues.work_kinds.TURNS`).

        The number of keys is at most the number of free threads of workers with the store's layout and owner, and 0
        while every such worker has a batch waiting. While several tenants have keys, one of them holds at most
        `tenant_share` of all threads, and two at least. Raises StoreLost while the store has no epoch."""

    def shorten_leases(self) -> int:
        """Shorten leases and registrations that end later than any can, because the server's clock was set back or
        another server has taken over. Return how many there were."""

    def inspect(self) -> WorkInspection:
        """Return the whole content for an inspection. Changes nothing."""

    def forget(self, epoch: int) -> None:
        """Delete every key, and every job in RQ that waits or has failed. Registered workers stay. The store is lost,
        too, and StaleEpoch is raised as by the store's `forget`."""


class WorkSink(Protocol):
    """A worker's side of the work queue."""

    def register(self, registration: Registration) -> StoreIdentity:
        """Register a live worker. The registration lasts 15 seconds; a worker repeats it every few seconds. A worker
        that stops is taken off the list (`Registration.is_listed`).

        Only workers of the store's layout and owner count for dispatch. Works while the store has no epoch."""

    def begin(self, leases: Sequence[Lease]) -> list[Task]:
        """Begin runs of leased keys. Return a task, under the running lease, for each key whose token is still valid;
        the other keys are lost. Raises StoreLost while the store has no epoch: nothing runs before the rebuild."""

    def renew(self, leases: Sequence[Lease]) -> None:
        """Prolong running leases. A lost lease stays lost."""

    def holds(self, key: JobKey, token: str) -> bool:
        """Return whether the token is still the key's and no rebuild has happened since the run began. This is the
        fence that a run checks before it acts."""

    def raise_charge(self, key: JobKey, token: str, attempt: int, charge: Amounts) -> Refusal:
        """Raise the charge of an admitted job whose pods request more than its reservation has.

        For each resource, the reservation of this attempt gets the larger of its charge and `charge`. The result is
        empty if the reservation has that charge now. The result is "quota", "cohort" or "pool" if that has no room for
        the difference. The result is "reservation" if there is no such reservation, or if the token is no longer the
        key's. The store changes nothing unless the result is empty. Safe to repeat. Raises StoreLost while the store
        has no epoch.
        """

    def finish(
        self,
        key: JobKey,
        token: str,
        *,
        requeue_after: float | None = None,
        failed: bool = False,
        pods_version: int = 0,
        settled_version: int = 0,
    ) -> None:
        """Give a key back after a run, or give back a lease that was not begun.

        `pods_version` is the newest resourceVersion of the key's pods that this worker knows. The next run waits for a
        cache that has this version. The key's reservation stays until the coordinator knows that version; after a
        failed run, it stays until a run has succeeded (`QueueWriter.remove`). `settled_version` is the job's
        resourceVersion at which the run found nothing left to do but to wait; 0 if more may be left to do.

        The key runs again at once if it was offered meanwhile, and after `requeue_after` seconds if that is given. With
        failed=True it runs again after a backoff, which doubles from 0.1 s to 60 s and ends with the next success."""
