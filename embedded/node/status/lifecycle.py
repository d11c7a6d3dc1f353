"""What is to be done next for a pod on the embedded node, as the kubelet would.

One rule: pure. From what the pod wants and what its runs' folders tell, to the next few actions and the moment to look
again; nothing is remembered between two looks but what the caller hands in.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from embedded.node.runs.container_runs import Ending, Run

RestartPolicy = Literal["Always", "OnFailure", "Never"]
Histories = Mapping[str, Sequence[Run]]
"""The runs of each container, oldest first."""

_LONG_RUN_SECONDS = 600.0
"""A run of this length ends a series of failures: the next back-off begins anew (kubelet: twice the longest one)."""
_KILL_AGAIN_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Backoff:
    """The waits before restarts. The first restart is immediate, as the kubelet's."""

    base: float = 10.0
    """Seconds before the second restart; doubles from restart to restart."""
    cap: float = 300.0
    """The longest wait, in seconds."""

    def delay(self, history: Sequence[Run]) -> float:
        """Seconds between the end of the last run and the next."""
        failures = 0
        for run in reversed(history):
            if run.ending is None or run.ending.finished_at - (run.started_at or 0) >= _LONG_RUN_SECONDS:
                break
            failures += 1
        return 0.0 if failures < 2 else min(self.cap, self.base * 2.0 ** min(failures - 2, 32))


@dataclass(frozen=True, slots=True)
class Stopping:
    """Why a pod's containers are to end, and since when they know."""

    grace: float
    """Seconds between SIGTERM and SIGKILL."""
    since: float
    """When SIGTERM was due, in seconds since the epoch."""
    signalled: frozenset[tuple[str, int]] = frozenset()
    """Container and restart of the runs that were sent SIGTERM."""


@dataclass(frozen=True, slots=True)
class Start:
    """Begin the next run of a container."""

    container: str
    restart: int


@dataclass(frozen=True, slots=True)
class Terminate:
    """Ask a running container to end (SIGTERM to its process group)."""

    container: str
    run: Run


@dataclass(frozen=True, slots=True)
class Kill:
    """End a container and everything it started (SIGKILL)."""

    container: str
    run: Run


Action = Start | Terminate | Kill


@dataclass(frozen=True, slots=True)
class Plan:
    """The next actions, and when to look again if nothing changes before."""

    actions: tuple[Action, ...] = ()
    wake_at: float = math.inf
    """Seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Restart:
    """The last restart in place that a pod was given: its main containers end and begin again, whatever its policy."""

    generation: str
    """What it was asked for by."""
    ended: Mapping[str, int]
    """The newest run of each container that had any: it and those before it are over, and how is no matter."""


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
        """In the order of their start."""
        return self.init + self.main

    def first(self, name: str) -> int:
        """The number of a container's first run since the pod was restarted in place."""
        return self.restart.ended.get(name, -1) + 1 if self.restart else 0


def containers(spec: Mapping[str, Any], backoff: Backoff) -> Containers:
    """What of a pod's spec decides its life."""
    return Containers(
        tuple(each["name"] for each in spec["containers"]),
        tuple(each["name"] for each in spec.get("initContainers") or ()),
        spec.get("restartPolicy") or "Always",
        backoff,
    )


def plan(pod: Containers, histories: Histories, now: float, stopping: Stopping | None = None) -> Plan:
    """The next actions for a pod that is to run, or whose containers are to end, for good or to begin again."""
    if stopping is not None:
        return _stop(pod, histories, now, stopping)
    histories = current(pod, histories)
    waiting = next((name for name in pod.init if not succeeded(histories[name])), None)
    names = pod.main if waiting is None else (waiting,)
    return _merge(_advance(pod, name, histories[name], now) for name in names)


def current(pod: Containers, histories: Histories) -> Histories:
    """The runs since the pod was restarted in place: how those before ended says nothing of the pod."""
    if pod.restart is None:
        return histories
    return {
        name: tuple(run for run in history if run.restart >= pod.first(name)) for name, history in histories.items()
    }


def makes_way(pod: Containers, histories: Histories) -> bool:
    """Whether runs that a restart in place ends are still there: none begins before all have ended."""
    return any(
        history and history[-1].alive and history[-1].restart < pod.first(name) for name, history in histories.items()
    )


def outcome(pod: Containers, histories: Histories) -> Literal["Pending", "Running", "Succeeded", "Failed"]:
    """A pod's phase, by the rules of the kubelet."""
    histories = current(pod, histories)
    for name in pod.init:
        if not succeeded(histories[name]):
            return "Failed" if over(pod, name, histories[name]) else "Pending"
    if all(over(pod, name, histories[name]) for name in pod.main):
        return "Succeeded" if all(succeeded(histories[name]) for name in pod.main) else "Failed"
    begun = any(run.started_at is not None for name in pod.main for run in histories[name])
    begun = begun or bool(pod.restart and pod.restart.ended)
    return "Running" if begun else "Pending"


def stopped_outcome(pod: Containers, histories: Histories) -> Literal["Succeeded", "Failed"]:
    """The phase of a pod that was stopped: whatever would have been restarted is not any more."""
    histories = current(pod, histories)
    return "Succeeded" if all(succeeded(histories[name]) for name in pod.all) else "Failed"


def ended_before(pod: Containers, histories: Histories, moment: float) -> bool:
    """Whether a pod had ended for good before a moment, given in seconds since the epoch."""
    endings = [last_ending(history) for history in current(pod, histories).values() if history]
    over_by_then = all(ending is not None and ending.finished_at < moment for ending in endings)
    return over_by_then and outcome(pod, histories) in ("Succeeded", "Failed")


def alive(histories: Histories) -> bool:
    """Whether anything of a pod may run."""
    return any(history and history[-1].alive for history in histories.values())


def over(pod: Containers, name: str, history: Sequence[Run]) -> bool:
    """Whether a container has ended and will not be restarted."""
    ending = last_ending(history)
    return ending is not None and not _restarts(pod, name, ending)


def succeeded(history: Sequence[Run]) -> bool:
    """Whether a container's last run ended with exit code 0."""
    ending = last_ending(history)
    return ending is not None and ending.exit_code == 0


def last_ending(history: Sequence[Run]) -> Ending | None:
    """How a container's last run ended; None if it runs, or never ran."""
    return history[-1].ending if history else None


def restart_at(pod: Containers, name: str, history: Sequence[Run]) -> float | None:
    """When a container that has ended begins again; None if it does not."""
    ending = last_ending(history)
    if ending is None or not _restarts(pod, name, ending):
        return None
    return ending.finished_at + pod.backoff.delay(history)


def _restarts(pod: Containers, name: str, ending: Ending) -> bool:
    policy = "OnFailure" if name in pod.init and pod.restart_policy == "Always" else pod.restart_policy
    return policy == "Always" or (policy == "OnFailure" and ending.exit_code != 0)


def _advance(pod: Containers, name: str, history: Sequence[Run], now: float) -> Plan:
    """The next step of one container."""
    if not history:
        return Plan((Start(name, pod.first(name)),))
    due = restart_at(pod, name, history)
    if due is None:
        return Plan()
    return Plan((Start(name, history[-1].restart + 1),)) if due <= now else Plan(wake_at=due)


def _stop(pod: Containers, histories: Histories, now: float, stopping: Stopping) -> Plan:
    """SIGTERM once for each run, SIGKILL after the grace until nothing is left."""
    alive = [(name, histories[name][-1]) for name in pod.all if histories[name] and histories[name][-1].alive]
    deadline = stopping.since + stopping.grace
    if now >= deadline:
        actions = tuple(Kill(name, run) for name, run in alive)
        return Plan(actions, now + _KILL_AGAIN_SECONDS if actions else math.inf)
    due = tuple(
        Terminate(name, run)
        for name, run in alive
        if run.process is not None and (name, run.restart) not in stopping.signalled
    )
    return Plan(due, deadline if alive else math.inf)


def _merge(plans: Iterator[Plan]) -> Plan:
    gathered = tuple(plans)
    actions = tuple(action for each in gathered for action in each.actions)
    return Plan(actions, min((each.wake_at for each in gathered), default=math.inf))
