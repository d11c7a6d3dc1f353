"""Restarts in place: whether a pod is given the one it is asked for, and what is said of it.

One rule: pure, and a container that failed by itself stays failed: a restart that comes too late does not hide it.
"""

from embedded.node.status import lifecycle
from embedded.node.status.lifecycle import Containers, Histories, Restart
from embedded.pod import FINISHED

_DONE, _TOO_LATE = "Restarted", "PodFinished"

Condition = tuple[bool, str, str]
"""Whether it was done, a reason, and the generation as the message."""


def taken_up(pod: Containers, histories: Histories, wanted: str) -> Restart | None:
    """The restart that a pod that is to run on is given now; None if none is asked for, or it comes too late."""
    if not _asked(pod, wanted) or _too_late(pod, histories):
        return None
    return Restart(wanted, {name: histories[name][-1].restart for name in pod.main if histories[name]})


def verdict(pod: Containers, histories: Histories, wanted: str, phase: str) -> Condition | None:
    """What is to be said of the restart asked for, or of the last one; None while there is nothing to say."""
    if _asked(pod, wanted):
        late = phase in FINISHED or _too_late(pod, histories)
        return (False, _TOO_LATE, wanted) if late else None
    if pod.restart is None:
        return None
    if _done(pod, histories):
        return True, _DONE, pod.restart.generation
    return (False, _TOO_LATE, pod.restart.generation) if phase in FINISHED else None


def _asked(pod: Containers, wanted: str) -> bool:
    """Whether a restart is asked for that the pod was not given yet."""
    return wanted.isdecimal() and (pod.restart is None or pod.restart.generation != wanted)


def _too_late(pod: Containers, histories: Histories) -> bool:
    """Whether the pod has ended, or cannot end but badly."""
    now = lifecycle.current(pod, histories)
    failed = any(lifecycle.over(pod, name, now[name]) and not lifecycle.succeeded(now[name]) for name in pod.all)
    return failed or lifecycle.outcome(pod, histories) in FINISHED


def _done(pod: Containers, histories: Histories) -> bool:
    """Whether every main container has begun again."""
    now = lifecycle.current(pod, histories)
    return all(now[name] and (now[name][-1].started_at is not None or not now[name][-1].alive) for name in pod.main)
