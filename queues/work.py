"""What dispatch promises: a work queue of keys, level-triggered.

One rule: at most one worker has a key, and an offer that arrives while it has it causes exactly one more run.
Any number of offers while a key waits collapse into one. A key whose worker died comes back when its lease ends.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from crds.keys import JobKey
from queues.values import Offer, Task


class WorkSource(Protocol):
    """The coordinator's end."""

    def offer(self, offers: Iterable[Offer]) -> None:
        """Mark keys as work. Costs nothing twice."""

    def dispatch(self) -> int:
        """Wake keys that are due or whose lease ended, then lease ready keys fairly over tenants and push them to the workers, as
        many as there are free threads. The number of keys pushed."""


class WorkSink(Protocol):
    """A worker's end."""

    def register(self, worker: str, threads: int) -> None:
        """Say that this worker is alive and how many threads it has; repeated every few seconds, forgotten after 15."""

    def begin(self, leases: Sequence[tuple[JobKey, str]]) -> list[Task]:
        """Start on (key, token) pairs: those still ours become tasks under the running lease; the others were lost."""

    def renew(self, tokens: Sequence[tuple[JobKey, str]]) -> None:
        """Prolong running leases; a lost one is left lost."""

    def holds(self, key: JobKey, token: str) -> bool:
        """The fence: whether the token is still the key's and no rebuild has happened since it began."""

    def finish(self, key: JobKey, token: str, *, requeue_after: float | None = None, failed: bool = False) -> None:
        """Give a key back. It runs again at once if it was offered meanwhile, after `requeue_after` seconds if that is given,
        and with failed=True after a backoff that doubles from 0.1 s to 60 s and is forgotten by the next success."""
