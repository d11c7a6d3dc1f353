"""The deletion of pods: with their grace, or at once where the node is dead.

One rule: pure. A pod on a healthy node may take as long as it needs; on a dead node it gets its own grace, because the
node has had its own before it was judged dead. An admin limits the grace that a template requests, or resources could
be held for an unlimited time.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from reconcilers.values import Action, DeletePods, EmitEvent
from reconcilers.views import pod_view
from reconcilers.views.pod_view import PodView

MOST_NAMED = 10
UNPAID_SECONDS = 30.0
UNPAID = "they take more resources than the job is charged for"
AT_ONCE_SECONDS = 1
"""The shortest grace after which a node still reports the end of a pod. With 0 the API server forgets the pod at once,
and its processes may go on."""
NEEDED = "setting idle_grace: others need the room of this idle growth"
SHORTENED = "GracePeriodShortened"
"""The reason of an event: pods request a longer grace than the setting `longest_grace` allows."""


@dataclass(frozen=True, slots=True)
class PodDeletion:
    """How pods are deleted now: the time in seconds since the epoch, how long a node may be silent, and the dead
    nodes."""

    now: float
    grace: float
    dead: frozenset[str] = frozenset()
    longest: float = math.inf
    """The longest grace in seconds, whatever the pod's template requests."""
    limit_reason: str = "setting longest_grace"
    """The reason for that limit."""

    def for_uncharged(self) -> "PodDeletion":
        """Return the deletion of pods that take more resources than their job is charged for. The
        grace of these pods is limited to Kubernetes' default.
        """
        return replace(self, longest=UNPAID_SECONDS, limit_reason=UNPAID) if self.longest > UNPAID_SECONDS else self

    def for_late(self) -> "PodDeletion":
        """Return the deletion of pods of idle growth that have not ended in time, although others need their room."""
        return replace(self, longest=AT_ONCE_SECONDS, limit_reason=NEEDED)

    def delete(self, pods: Iterable[PodView], *, shorten: bool = False) -> tuple[DeletePods, ...]:
        """Delete the pods that are not being deleted yet. With `shorten`, pods that another program deleted with a
        longer grace than the limit get the limit, too."""
        candidates = tuple(pods)
        if not candidates:
            return ()
        at_once = tuple(
            pod
            for pod in candidates
            if self._is_on_dead_node(pod) and not pod.has_finalizers and self._seconds_left(pod) <= 0
        )
        late = {pod.uid for pod in at_once}
        to_delete = tuple(pod for pod in candidates if pod.uid not in late and (not pod.deleting or shorten))
        graceful = tuple(pod for pod in to_delete if not pod.deleting and not self._is_long(pod))
        bounded = tuple(pod for pod in to_delete if self._is_long(pod))
        steps = (DeletePods(graceful), self._shortened(bounded), DeletePods(at_once, at_once=True))
        return tuple(step for step in steps if step.pods)

    def _shortened(self, pods: tuple[PodView, ...]) -> DeletePods:
        seconds = None if math.isinf(self.longest) else math.ceil(self.longest)
        return DeletePods(pods, seconds=seconds, limit_reason=self.limit_reason)

    def _is_long(self, pod: PodView) -> bool:
        return pod.grace is not None and pod.grace > self.longest

    def next_change(self, pods: Iterable[PodView]) -> float | None:
        """Return the seconds after which the deletion of pods may proceed although no event arrives; None if only an
        event can matter."""
        remaining = [self._seconds_left(pod) for pod in pods if pod.deleting and pod.deadline is not None]
        if not remaining:
            return None
        return min(seconds if seconds > 0 else max(self.grace, 1.0) for seconds in remaining)

    def stuck_pods(self, pods: Iterable[PodView]) -> tuple[PodView, ...]:
        """Return the pods that finalizers keep beyond their grace."""
        return tuple(pod for pod in pods if pod.has_finalizers and pod.deleting and self._seconds_left(pod) <= 0)

    def describe_stuck(self, stuck: Iterable[PodView]) -> str:
        """Return a message with the names of stuck pods."""
        names = pod_view.list_names([pod.name for pod in stuck], MOST_NAMED)
        return f"pods should be deleted, but finalizers keep them: {names}"

    def _is_on_dead_node(self, pod: PodView) -> bool:
        return pod.node in self.dead

    def _seconds_left(self, pod: PodView) -> float:
        """Return the seconds until a pod's deletion is overdue; 0 for a pod that has no such time."""
        if not pod.deleting:
            return 0.0
        grace = 0.0 if self._is_on_dead_node(pod) else self.grace
        return 0.0 if pod.deadline is None else pod.deadline + grace - self.now


def grace_events(actions: Iterable[Action]) -> tuple[EmitEvent, ...]:
    """Return an event for the pods of each of these actions that get less grace than they request."""
    deletions = (each for each in actions if isinstance(each, DeletePods) and each.seconds is not None)
    return tuple(event for each in deletions if (event := _grace_event(each)) is not None)


def _grace_event(deletion: DeletePods) -> EmitEvent | None:
    affected = [pod for pod in deletion.pods if pod_view.occupies(pod)]
    if not affected:
        return None
    names = pod_view.list_names([pod.name for pod in affected], MOST_NAMED)
    requested = max(pod.grace or 0 for pod in affected)
    seconds, reason = deletion.seconds, deletion.limit_reason
    message = f"pods request up to {requested} s of grace, get {seconds} s ({reason}): {names}"
    return EmitEvent(SHORTENED, message, warning=True)
