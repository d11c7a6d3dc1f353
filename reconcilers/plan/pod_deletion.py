"""How pods go: with their grace, or at once where there is nobody left to grant it.

One rule: pure. A pod on a node that is well is waited for, however long it takes; on a dead one for its own grace and
the node's. What a template asks for as grace is bounded by an admin, or room that is taken back never comes back.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from reconcilers.values import Action, DeletePods, Tell
from reconcilers.views import pod_view
from reconcilers.views.pod_view import PodView

MOST_NAMED = 10
UNPAID_SECONDS = 30.0
UNPAID = "they take more room than the job is charged for"
SHORTENED = "GracePeriodShortened"
"""Reason of an event: pods ask for more grace than the setting `longest_grace` allows."""


@dataclass(frozen=True, slots=True)
class Departures:
    """What time it is (seconds since the epoch), how long a node may be silent, and which nodes are dead."""

    now: float
    grace: float
    dead: frozenset[str] = frozenset()
    longest: float = math.inf
    """Seconds of grace that a pod is given at most, whatever its template asks for."""
    bound: str = "setting longest_grace"
    """Why it is given no more."""

    def unpaid(self) -> "Departures":
        """The same for pods that take more room than their job is charged for: they get as much grace as Kubernetes
        gives a pod that asks for none."""
        return replace(self, longest=UNPAID_SECONDS, bound=UNPAID) if self.longest > UNPAID_SECONDS else self

    def away(self, pods: Iterable[PodView], *, shorten: bool = False) -> tuple[DeletePods, ...]:
        """Delete these pods, as far as they are not on their way already. With `shorten`, pods that somebody else has
        deleted with a longer grace than the longest are given the longest, too."""
        found = tuple(pods)
        if not found:
            return ()
        at_once = tuple(pod for pod in found if self._lost(pod) and not pod.held and self._overdue(pod) <= 0)
        late = {pod.uid for pod in at_once}
        asked = tuple(pod for pod in found if pod.uid not in late and (not pod.deleting or shorten))
        graceful = tuple(pod for pod in asked if not pod.deleting and not self._is_long(pod))
        bounded = tuple(pod for pod in asked if self._is_long(pod))
        steps = (DeletePods(graceful), DeletePods(bounded, seconds=self._most), DeletePods(at_once, at_once=True))
        return tuple(each for each in steps if each.pods)

    @property
    def _most(self) -> int | None:
        return None if math.isinf(self.longest) else math.ceil(self.longest)

    def _is_long(self, pod: PodView) -> bool:
        return pod.grace is not None and pod.grace > self.longest

    def shortened(self, actions: Iterable[Action]) -> tuple[Tell, ...]:
        """An event for the pods of these actions that get less grace than they ask for."""
        deletions = (each for each in actions if isinstance(each, DeletePods) and each.seconds is not None)
        found = [pod for each in deletions for pod in each.pods if pod_view.occupies(pod)]
        if not found:
            return ()
        more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        names = ", ".join(pod.name for pod in found[:MOST_NAMED]) + more
        asked = max(pod.grace or 0 for pod in found)
        message = f"asked for up to {asked} s of grace, get {self._most} s ({self.bound}): {names}"
        return (Tell(SHORTENED, message, warning=True),)

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
