"""Facts that earlier objects of a pod have shown, and that its newest object no longer shows.

One rule: pure. A request to end a pod is never forgotten, and a success that was seen before any request stays a
success. Neither the order in which objects arrive matters, nor whether some were merged or repeated.
"""

from collections.abc import Collection
from dataclasses import replace

from reconcilers.views import pod_outcome
from reconcilers.views.pod_outcome import UNKNOWN, PodEnd
from reconcilers.views.pod_view import PodView

SETTLING = 2.0
"""The seconds for which the end of a pod may still be explained: by its node, or by another pod's failure from which it
follows, or which explains a permanent failure better."""
UNREPORTED = "ContainerUnreported: its node no longer reported its container, and then the end of it"
"""The disruption of a pod whose node reported it running without its main container. So does a kubelet that was
restarted and no longer accepts the pod; then it ends the container."""


def remember(before: PodView, after: PodView) -> PodView:
    """Return the newest view of a pod, with the facts that an earlier view of the same pod has shown."""
    if before.uid != after.uid:
        return after
    deletion_asked = _first(before.deletion_asked, after.deletion_asked)
    end = after.end
    if PodEnd.UNREPORTED in before.end and PodEnd.TERMINATED in end:
        end = (end | PodEnd.UNREPORTED) & ~PodEnd.PROVED
    is_disproved = PodEnd.COMPLETED in end and PodEnd.UNASKED not in end
    if before.restarts == after.restarts and not is_disproved:
        end |= before.end & PodEnd.PROVED
    after = replace(after, deletion_asked=deletion_asked, end=end)
    if PodEnd.TERMINATED in end and PodEnd.UNREPORTED in end and PodEnd.PROVED not in end:
        # Such a kubelet does not start the container again, whatever the restartPolicy, and says no more of the end.
        lost = replace(after.unended(), phase="Failed", end=end & ~(PodEnd.AWAITS_RESTART | PodEnd.SETTLES))
        return replace(lost, disruption=after.disruption or UNREPORTED)
    if PodEnd.COMPLETED not in end:
        return after
    if PodEnd.PROVED in end or (PodEnd.UNASKED in end and pod_outcome.is_before(after.ended, deletion_asked)):
        return replace(after, phase="Succeeded")
    return replace(after, phase="Failed") if after.phase == "Succeeded" else after


def _first(before: float | None, after: float | None) -> float | None:
    """Return the time of the first request for a deletion. A time that an object shows says more than an object without
    a time: a kubelet that has ended a pod deletes it once more and so removes the time."""
    known = [time for time in (before, after) if time is not None and time != UNKNOWN]
    return min(known) if known else before if after is None else after


def settle(pods: Collection[PodView], now: float) -> tuple[tuple[PodView, ...], float | None]:
    """Return pods as they are to be judged now, and the seconds until a pod may be judged otherwise.

    A kubelet ends a pod in two steps: it reports that the containers have ended, and about a second later the phase,
    with the reason if the end was its own deed. Until then, such a pod counts as running.
    """
    remaining = {
        pod.uid: pod.ended + SETTLING - now for pod in pods if PodEnd.SETTLES in pod.end and pod.ended is not None
    }
    waiting = {uid: seconds for uid, seconds in remaining.items() if 0 < seconds <= SETTLING}
    settled = tuple(pod.unended() if pod.uid in waiting else pod for pod in pods) if waiting else tuple(pods)
    return settled, min(waiting.values(), default=None)
