"""Restarts in place: whether a requested restart is done, and the condition that reports it.

One rule: pure, and a container that failed by itself stays failed. A restart that is requested after that does not hide
the failure.
"""

from embedded.node.status import lifecycle
from embedded.node.status.lifecycle import Containers, Histories, Restart
from embedded.pod import FINISHED

_DONE, _TOO_LATE = "Restarted", "PodFinished"

Condition = tuple[bool, str, str]
"""Whether the restart was done, a reason, and the generation as the message."""


def next_restart(pod: Containers, histories: Histories, generation: str) -> Restart | None:
    """Return the restart to do now for the requested generation.

    None if it was done before, if none is requested, or if the request comes too late.
    """
    if not _is_new(pod, generation) or _is_too_late(pod, histories):
        return None
    return Restart(generation, {name: histories[name][-1].restart for name in pod.main if histories[name]})


def outcome(pod: Containers, histories: Histories, generation: str, phase: str) -> Condition | None:
    """Return the condition of the requested restart, or of the last one; None while neither has an outcome."""
    if _is_new(pod, generation):
        late = phase in FINISHED or _is_too_late(pod, histories)
        return (False, _TOO_LATE, generation) if late else None
    if pod.restart is None:
        return None
    if _is_done(pod, histories):
        return True, _DONE, pod.restart.generation
    return (False, _TOO_LATE, pod.restart.generation) if phase in FINISHED else None


def _is_new(pod: Containers, generation: str) -> bool:
    """Return whether a restart is requested that was not done yet."""
    return generation.isdecimal() and (pod.restart is None or pod.restart.generation != generation)


def _is_too_late(pod: Containers, histories: Histories) -> bool:
    """Return whether the pod has ended, or is certain to fail."""
    runs = lifecycle.runs_since_restart(pod, histories)
    ended = [runs[name] for name in pod.all if lifecycle.is_over(pod, name, runs[name])]
    return not all(map(lifecycle.has_succeeded, ended)) or lifecycle.outcome(pod, histories) in FINISHED


def _is_done(pod: Containers, histories: Histories) -> bool:
    """Return whether every main container has begun again."""
    runs = lifecycle.runs_since_restart(pod, histories)
    return all(runs[name] and (runs[name][-1].started_at is not None or not runs[name][-1].alive) for name in pod.main)
