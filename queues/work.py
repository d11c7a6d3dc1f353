"""What dispatch promises: a work queue of keys, level-triggered.

One rule: at most one worker has a key, and an offer that arrives while it has it causes exactly one more run.
Any number of offers while a key waits collapse into one. A key whose worker died comes back when its lease ends.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from crds.keys import JobKey
from crds.resources.amounts import Amounts
from queues.inspection_values import WorkPicture
from queues.values import Offer, Refusal, Task

SETTLED_SECONDS = 10
"""How long it is remembered what a run has settled: as long as the news of its own writes may take."""

Lease = tuple[JobKey, str]
"""A key and the token that fences it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSettings:
    """Times of the work queue, in seconds, and its sizes."""

    dispatched_lease: float = 20.0
    """How long a batch may wait in RQ; one taken later finds its keys lost, and they are on their way again already. So
    long, too, its keys are away when a worker dies in the millisecond between taking it and beginning on it."""
    running_lease: float = 15.0
    """How soon a dead worker's keys come back; renewed three times as often."""
    longest_run: float = 120.0
    """A run that takes longer hangs: its lease is renewed no more. Several unanswered API requests fit into it."""
    registration: float = 15.0
    """How long a silent worker counts as alive."""
    batch: int = 32
    """Most keys in one RQ job; above this RQ's cost per key no longer matters."""
    backoff_first: float = 0.1
    backoff_cap: float = 60.0
    batch_timeout: int = 120
    """How long RQ lets one batch look for free threads; longer than the dispatched lease, after which it is void."""
    failed_batch_kept: int = 3600
    """How long RQ keeps the record of a batch that was not taken or whose worker died, for people to look at."""


def backoff(failures: int, settings: WorkSettings) -> float:
    """Seconds to wait after so many failures in a row: 0.1, 0.2, 0.4 ... 60."""
    return min(settings.backoff_cap, settings.backoff_first * 2.0 ** min(failures - 1, 64))


def batch_size(ready: int, workers: int, threads: int, most: int) -> int:
    """How many keys go into one RQ job: each by itself while little is ready, so that every free worker gets one at
    once; many while much is, to share RQ's cost; never more than one worker has threads."""
    share = max(1, workers)
    return max(1, min(most, -(-ready // (2 * share)), -(-threads // share)))


class Left(NamedTuple):
    """What a run leaves behind, for whoever comes next (`WorkSink.finish`)."""

    made: int = 0
    """The newest resourceVersion of the job's pods that is known to whoever ran."""
    settled: int = 0
    """The job's resourceVersion after which nothing is left to do; 0 if there may be something."""


class WorkSource(Protocol):
    """The coordinator's end."""

    def offer(self, offers: Iterable[Offer]) -> None:
        """Mark keys as work. Costs nothing twice. One that has a `version` marks nothing if a run has settled that
        version, or a later one, and has seen the pods, within SETTLED_SECONDS. StoreLost while the store has no
        epoch."""

    def drop(self, keys: Iterable[JobKey]) -> None:
        """Forget keys whose jobs are gone: what was to be looked at later need not be, unless its last run failed and
        may have left something behind; what is being looked at is looked at once more, since that look may have begun
        before."""

    def dispatch(self) -> int:
        """Wake keys that are due or whose lease ended, then lease ready keys fairly over tenants and push them to the
        workers, as many as there are free threads; none while every worker has a batch waiting. How many were pushed.
        StoreLost while the store has no epoch."""

    def inspect(self) -> WorkPicture:
        """What it holds, for comparing. Changes nothing."""

    def forget(self, epoch: int) -> None:
        """Lose every key, and what waits or has failed in RQ; registered workers stay. Loses the store too, and is
        refused, as the store's `forget` is."""


class WorkSink(Protocol):
    """A worker's end."""

    def register(self, worker: str, threads: int) -> None:
        """Say that this worker is alive and how many threads it has; repeated every few seconds, forgotten after 15.
        Zero threads: it stops, and its threads are counted no more."""

    def begin(self, leases: Sequence[Lease]) -> list[Task]:
        """Start on (key, token) pairs: those still ours become tasks under the running lease; the others were lost.
        StoreLost while the store has no epoch: nothing runs before the rebuild."""

    def renew(self, leases: Sequence[Lease]) -> None:
        """Prolong running leases; a lost one is left lost."""

    def holds(self, key: JobKey, token: str) -> bool:
        """The fence: whether the token is still the key's and no rebuild has happened since it began."""

    def raise_charge(self, key: JobKey, token: str, attempt: int, charge: Amounts) -> Refusal:
        """Charge an admitted job for more, because its pods ask for more than was thought: its reservation of this
        attempt is charged, name by name, the larger of what it has and `charge`. Empty if it has that charge now;
        "quota", "cohort" or "pool" if that has no room for the difference; "reservation" if there is no such
        reservation or the token is not the key's any more. Nothing is changed unless the answer is empty. Safe to
        repeat. StoreLost while the store has no epoch."""

    def finish(
        self,
        key: JobKey,
        token: str,
        *,
        requeue_after: float | None = None,
        failed: bool = False,
        made: int = 0,
        settled: int = 0,
    ) -> None:
        """Give a key back. `made` is the newest resourceVersion of its pods that this worker knows of: whoever is next
        sees at least that, and its reservation is kept until the coordinator has; after a failed run, until one has
        succeeded (`QueueStore.remove`). `settled` is the job's resourceVersion after which, by all that this run has
        seen, nothing is left to do but to wait; 0 if there may be something.

        It runs again at once if it was offered meanwhile, after `requeue_after` seconds if that is given, and with
        failed=True after a backoff that doubles from 0.1 s to 60 s and is forgotten by the next success. A lease that
        was not begun can be given back too."""
