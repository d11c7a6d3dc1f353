"""How pods go: with their grace, or at once where there is nobody left to grant it.

One rule: pure. A pod on a node that is well is waited for, however long it takes; on a dead one for its own grace and
the node's.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from reconcilers.pod_view import PodView
from reconcilers.values import DeletePods

MOST_NAMED = 10


@dataclass(frozen=True, slots=True)
class Departures:
    """What time it is (seconds since the epoch), how long a node may be silent, and which nodes are dead."""

    now: float
    grace: float
    dead: frozenset[str] = frozenset()

    def away(self, pods: Iterable[PodView]) -> tuple[DeletePods, ...]:
        """Delete these pods, as far as they are not on their way already."""
        found = tuple(pods)
        graceful = tuple(pod for pod in found if not pod.deleting and (pod.held or not self._lost(pod)))
        at_once = tuple(pod for pod in found if self._lost(pod) and not pod.held and self._overdue(pod) <= 0)
        return tuple(DeletePods(each, late) for each, late in ((graceful, False), (at_once, True)) if each)

    def wait(self, pods: Iterable[PodView]) -> float | None:
        """Seconds until time alone changes anything about pods that are being deleted; None: only an event does."""
        left = [self._overdue(pod) for pod in pods if pod.deleting and pod.deadline is not None]
        if not left:
            return None
        return min(each if each > 0 else max(self.grace, 1.0) for each in left)

    def stuck(self, pods: Iterable[PodView]) -> tuple[PodView, ...]:
        """The pods that finalizers keep, beyond any grace."""
        return tuple(pod for pod in pods if pod.held and pod.deleting and self._overdue(pod) <= 0)

    def what_holds(self, stuck: Iterable[PodView]) -> str:
        """A sentence that names them."""
        found = tuple(stuck)
        more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        return f"should be gone, but finalizers keep them: {', '.join(pod.name for pod in found[:MOST_NAMED])}{more}"

    def _lost(self, pod: PodView) -> bool:
        return pod.node in self.dead

    def _overdue(self, pod: PodView) -> float:
        """Seconds until a pod's time is over; 0 for one that has been given none."""
        if not pod.deleting:
            return 0.0
        return 0.0 if pod.deadline is None else pod.deadline + self.grace - self.now
