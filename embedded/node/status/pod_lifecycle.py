"""Decides the next actions of the embedded node for a pod, as the kubelet would.

One rule: pure. The input is the pod's spec and its runs; the result is the next actions and the time of the next check.
Nothing is remembered between two calls except the values that the caller passes in. A container that failed by itself
stays failed: a restart in place that is requested after that does not hide the failure.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from embedded.node.runs.container_runs import Ending, Run
from embedded.pod import FINISHED

RestartPolicy = Literal["Always", "OnFailure", "Never"]
Histories = Mapping[str, Sequence[Run]]
"""The runs of each container, oldest first."""

_LONG_RUN_SECONDS = 600.0
"""The length of a run that ends a series of failures, so that the next back-off starts from its base. It is twice the
longest back-off, as in the kubelet."""
_KILL_AGAIN_SECONDS = 0.2
_DONE, _TOO_LATE = "Restarted", "PodFinished"
RestartOutcome = tuple[bool, str, str]
"""Whether a restart in place was done, a reason, and its generation as the message."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """The waits before restarts. The first restart is immediate, as in the kubelet."""

    base: float = 10.0
    """The seconds before the second restart; they double with every restart."""
    cap: float = 300.0
    """The longest wait, in seconds."""

    def delay(self, history: Sequence[Run]) -> float:
        """Return the seconds between the end of the last run and the start of the next run."""
        failures = 0
        for run in reversed(history):
            if run.ending is None or run.ending.finished_at - (run.started_at or 0) >= _LONG_RUN_SECONDS:
                break
            failures += 1
        return 0.0 if failures < 2 else min(self.cap, self.base * 2.0 ** min(failures - 2, 32))


@dataclass(frozen=True, slots=True)
class Termination:
    """The end of a pod's containers: with which grace, and since when."""

    grace: float
    """The seconds between SIGTERM and SIGKILL."""
    since: float
    """The time at which SIGTERM was due, in seconds since the epoch."""
    signalled: frozenset[tuple[str, int]] = frozenset()
    """Container and restart of the runs that were sent SIGTERM."""


@dataclass(frozen=True, slots=True)
class StartContainer:
    """Start the next run of a container."""

    container: str
    restart: int


@dataclass(frozen=True, slots=True)
class TerminateContainer:
    """Have SIGTERM sent to the first process of a running container."""

    container: str
    run: Run


@dataclass(frozen=True, slots=True)
class KillContainer:
    """Send SIGKILL to a container and every process that it started."""

    container: str
    run: Run


Action = StartContainer | TerminateContainer | KillContainer


@dataclass(frozen=True, slots=True)
class ActionPlan:
    """The next actions, and the time of the next check if nothing changes before."""

    actions: tuple[Action, ...] = ()
    wake_at: float = math.inf
    """The time of the next check, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Restart:
    """The last restart in place of a pod: its main containers end and begin again, whatever its restart policy."""

    generation: str
    """The generation for which the restart was requested."""
    ended: Mapping[str, int]
    """The newest run before the restart, by container. How these runs and the earlier ones ended does not matter."""


@dataclass(frozen=True, slots=True)
class Containers:
    """The containers of a pod, in the order of the spec."""

    main: tuple[str, ...]
    init: tuple[str, ...] = ()
    restart_policy: RestartPolicy = "Always"
    backoff: Backoff = field(default_factory=Backoff)
    restart: Restart | None = None

    @property
    def all(self) -> tuple[str, ...]:
        """All containers, in the order of their start."""
        return self.init + self.main

    def first(self, name: str) -> int:
        """Return the number of a container's first run since the last restart in place."""
        return self.restart.ended.get(name, -1) + 1 if self.restart else 0


def containers(spec: Mapping[str, Any], backoff: Backoff) -> Containers:
    """Return the containers and the restart policy of a pod's spec."""
    return Containers(
        tuple(container["name"] for container in spec["containers"]),
        tuple(container["name"] for container in spec.get("initContainers") or ()),
        spec.get("restartPolicy") or "Always",
        backoff,
    )


def plan(pod: Containers, histories: Histories, now: float, termination: Termination | None = None) -> ActionPlan:
    """Return the next actions for a pod: to run it, or, with a termination, to end its containers."""
    if termination is not None:
        return _terminate(pod, histories, now, termination)
    histories = runs_since_restart(pod, histories)
    waiting = next((name for name in pod.init if not has_succeeded(histories[name])), None)
    names = pod.main if waiting is None else (waiting,)
    plans = [_advance(pod, name, histories[name], now) for name in names]
    actions = tuple(action for each in plans for action in each.actions)
    return ActionPlan(actions, min((each.wake_at for each in plans), default=math.inf))


def runs_since_restart(pod: Containers, histories: Histories) -> Histories:
    """Return the runs since the last restart in place. The ends of earlier runs do not count for the pod."""
    if pod.restart is None:
        return histories
    return {
        name: tuple(run for run in history if run.restart >= pod.first(name)) for name, history in histories.items()
    }


def awaits_restart(pod: Containers, histories: Histories) -> bool:
    """Return whether a run from before a restart in place is alive: no run starts before all runs from before have
    ended.
    """
    return any(
        history and history[-1].alive and history[-1].restart < pod.first(name) for name, history in histories.items()
    )


def outcome(pod: Containers, histories: Histories) -> Literal["Pending", "Running", "Succeeded", "Failed"]:
    """Return a pod's phase, by the rules of the kubelet."""
    histories = runs_since_restart(pod, histories)
    for name in pod.init:
        if not has_succeeded(histories[name]):
            return "Failed" if is_over(pod, name, histories[name]) else "Pending"
    if all(is_over(pod, name, histories[name]) for name in pod.main):
        return "Succeeded" if all(has_succeeded(histories[name]) for name in pod.main) else "Failed"
    begun = any(run.started_at is not None for name in pod.main for run in histories[name])
    begun = begun or bool(pod.restart and pod.restart.ended)
    return "Running" if begun else "Pending"


def outcome_without_restarts(pod: Containers, histories: Histories) -> Literal["Succeeded", "Failed"]:
    """Return the phase of a pod that was stopped, so that none of its containers is restarted."""
    histories = runs_since_restart(pod, histories)
    return "Succeeded" if all(has_succeeded(histories[name]) for name in pod.all) else "Failed"


def has_ended_before(pod: Containers, histories: Histories, moment: float) -> bool:
    """Return whether a pod had ended for good before a moment, given in seconds since the epoch."""
    endings = [last_ending(history) for history in runs_since_restart(pod, histories).values() if history]
    all_ended = all(ending is not None and ending.finished_at < moment for ending in endings)
    return all_ended and outcome(pod, histories) in ("Succeeded", "Failed")


def is_alive(histories: Histories) -> bool:
    """Return whether a container of a pod runs or may run."""
    return any(history and history[-1].alive for history in histories.values())


def is_over(pod: Containers, name: str, history: Sequence[Run]) -> bool:
    """Return whether a container has ended and will not be restarted."""
    ending = last_ending(history)
    return ending is not None and not _restarts(pod, name, ending)


def has_succeeded(history: Sequence[Run]) -> bool:
    """Return whether a container's last run ended with exit code 0."""
    ending = last_ending(history)
    return ending is not None and ending.exit_code == 0


def last_ending(history: Sequence[Run]) -> Ending | None:
    """Return how a container's last run ended; None if it runs, or never ran."""
    return history[-1].ending if history else None


def restart_at(pod: Containers, name: str, history: Sequence[Run]) -> float | None:
    """Return when a container that has ended starts again; None if it does not."""
    ending = last_ending(history)
    if ending is None or not _restarts(pod, name, ending):
        return None
    return ending.finished_at + pod.backoff.delay(history)


def _restarts(pod: Containers, name: str, ending: Ending) -> bool:
    policy = "OnFailure" if name in pod.init and pod.restart_policy == "Always" else pod.restart_policy
    return policy == "Always" or (policy == "OnFailure" and ending.exit_code != 0)


def _advance(pod: Containers, name: str, history: Sequence[Run], now: float) -> ActionPlan:
    """Return the next action for one container."""
    if not history:
        return ActionPlan((StartContainer(name, pod.first(name)),))
    due = restart_at(pod, name, history)
    if due is None:
        return ActionPlan()
    return ActionPlan((StartContainer(name, history[-1].restart + 1),)) if due <= now else ActionPlan(wake_at=due)


def _terminate(pod: Containers, histories: Histories, now: float, termination: Termination) -> ActionPlan:
    """Return the actions that end all containers: SIGTERM once for each run, then SIGKILL after the grace.

    SIGKILL is repeated until no process is left.
    """
    alive = [(name, histories[name][-1]) for name in pod.all if histories[name] and histories[name][-1].alive]
    deadline = termination.since + termination.grace
    if now >= deadline:
        actions = tuple(KillContainer(name, run) for name, run in alive)
        return ActionPlan(actions, now + _KILL_AGAIN_SECONDS if actions else math.inf)
    due = tuple(
        TerminateContainer(name, run)
        for name, run in alive
        if run.process is not None and (name, run.restart) not in termination.signalled
    )
    return ActionPlan(due, deadline if alive else math.inf)


def next_restart(pod: Containers, histories: Histories, generation: str) -> Restart | None:
    """Return the restart to do now for the requested generation.

    The result is None if the restart was done before, if no restart is requested, or if the request comes too late.
    """
    if not _is_new(pod, generation) or _is_too_late(pod, histories):
        return None
    return Restart(generation, {name: histories[name][-1].restart for name in pod.main if histories[name]})


def restart_outcome(pod: Containers, histories: Histories, generation: str, phase: str) -> RestartOutcome | None:
    """Return the condition of the requested restart, or of the last restart; None while neither has an outcome."""
    if _is_new(pod, generation):
        late = phase in FINISHED or _is_too_late(pod, histories)
        return (False, _TOO_LATE, generation) if late else None
    if pod.restart is None:
        return None
    runs = runs_since_restart(pod, histories)
    if all(runs[name] and (runs[name][-1].started_at is not None or not runs[name][-1].alive) for name in pod.main):
        return True, _DONE, pod.restart.generation
    return (False, _TOO_LATE, pod.restart.generation) if phase in FINISHED else None


def _is_new(pod: Containers, generation: str) -> bool:
    """Return whether a restart is requested that was not done yet."""
    return generation.isdecimal() and (pod.restart is None or pod.restart.generation != generation)


def _is_too_late(pod: Containers, histories: Histories) -> bool:
    """Return whether the pod has ended, or is certain to fail."""
    runs = runs_since_restart(pod, histories)
    ended = [runs[name] for name in pod.all if is_over(pod, name, runs[name])]
    return not all(map(has_succeeded, ended)) or outcome(pod, histories) in FINISHED
