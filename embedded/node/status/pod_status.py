"""A pod's status from the state of its containers, in the terms of the kubelet.

One rule: pure. The previous status is an argument, so that the times of conditions change only with their status, and
fields of other writers stay.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crds import excerpts, labels, timestamps
from embedded.node.runs.container_runs import Ending, Run
from embedded.node.status import pod_lifecycle
from embedded.node.status.pod_lifecycle import Containers, Histories
from embedded.pod import FINISHED, PodFailure
from embedded.status_conditions import Status, condition, differs, merge_conditions

ADDRESS = "127.0.0.1"
"""The address of every pod of the embedded node: the machine's loopback address."""

DISRUPTION_TARGET = "DisruptionTarget"
"""The condition of a pod that ends for a reason that is not its own."""
_LONGEST_MESSAGE = 4096
"""The longest message of a container that ended, as in the kubelet."""
_RESTARTING = {"waiting": {"reason": "Restarting", "message": "all containers of the pod are restarted in place"}}
_BACKING_OFF = "restarting the failed container after a wait"


@dataclass(frozen=True, slots=True)
class StartProblem:
    """The reason why a container cannot start yet, in the terms of the kubelet."""

    message: str
    reason: str = "CreateContainerError"


@dataclass(frozen=True, slots=True)
class PodState:
    """Everything from which a pod's status is computed."""

    containers: Containers
    spec: Mapping[str, Any]
    histories: Histories
    last_output: Mapping[tuple[str, int], str]
    """By container and restart: the end of the output of a failed run whose message it becomes."""
    start_problems: Mapping[str, StartProblem]
    """The reason why a container that is to start cannot start yet, by its name."""
    stopping: bool
    volume_problem: str = ""
    """What the pod's volumes wait for, so that no container starts; empty if they are set up."""
    failure: PodFailure | None = None
    missing_file: str = ""
    """The file that a failed container did not find in the empty folder of a pod that names no folder."""
    port_problem: str = ""
    """What the pod has to do with a port of another job or program; empty for nothing."""
    restart_generation: str = ""
    """The generation for which the containers are to be restarted in place; empty for none."""
    ends_to_show: frozenset[str] = frozenset()
    """The containers that start again and whose last end is shown first, by name."""


def running_status(pod: PodState, before: Mapping[str, Any], now: float) -> Status:
    """Return the status of a pod that this node runs."""
    phase = _phase(pod)
    status: Status = {
        "phase": phase,
        "startTime": before.get("startTime") or timestamps.format_time(now),
        "hostIP": ADDRESS,
        "podIP": ADDRESS,
        "podIPs": [{"ip": ADDRESS}],
        "containerStatuses": [_container_status(pod, each, False) for each in pod.spec["containers"]],
        "conditions": _conditions(pod, phase, before.get("conditions") or (), now),
    }
    if pod.containers.init:
        status["initContainerStatuses"] = [_container_status(pod, each, True) for each in pod.spec["initContainers"]]
    if pod.failure is not None and (phase == "Failed" or pod.failure.disruption):
        status |= {"reason": pod.failure.reason, "message": pod.failure.message}
    return status


def rejected_status(failure: PodFailure, before: Mapping[str, Any], now: float) -> Status:
    """Return the status of a pod that this node does not run."""
    return {
        "phase": "Failed",
        "reason": failure.reason,
        "message": failure.message,
        "startTime": before.get("startTime") or timestamps.format_time(now),
    }


def last_ends(status: Status, before: Mapping[str, Any]) -> tuple[Status, ...]:
    """Return the status that a kubelet writes before the final status of a pod: its containers have ended, and its
    phase stays. Empty if `status` does not finish the pod, if none of its containers has run, or if that is written.
    """
    ended = any("terminated" in item["state"] for item in status.get("containerStatuses") or ())
    if status.get("phase") not in FINISHED or before.get("phase") in FINISHED or not ended:
        return ()
    ends = {name: value for name, value in status.items() if name not in ("phase", "reason", "message")}
    return (ends,) if differs(ends, before) else ()


def unseen_ends(containers: Containers, histories: Histories, before: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the containers that start again and whose last end the status before does not show."""
    shown = {
        item["name"]: item for kind in ("initContainerStatuses", "containerStatuses") for item in before.get(kind) or ()
    }
    return frozenset(
        name
        for name, history in pod_lifecycle.runs_since_restart(containers, histories).items()
        if pod_lifecycle.restart_at(containers, name, history) is not None
        and not _shows_end(shown.get(name, {}), history[-1].restart)
    )


def _shows_end(shown: Mapping[str, Any], restart: int) -> bool:
    """Return whether the status of a container shows that a run has ended."""
    is_over = any("terminated" in (shown.get(name) or {}) for name in ("state", "lastState"))
    return is_over and "running" not in shown["state"] and shown["restartCount"] >= restart


def restart_conditions(pod: PodState, phase: str) -> list[dict[str, str]]:
    """Return the condition of the pod's restart in place; an empty list if the pod has no such condition."""
    outcome = pod_lifecycle.restart_outcome(pod.containers, pod.histories, pod.restart_generation, phase)
    return [] if outcome is None else [condition(labels.CONTAINERS_RESTARTED, *outcome)]


def _advice(missing: str) -> str:
    return (
        f"{missing} is missing: a job that is made by kubectl runs in an empty folder, as torchq does not know "
        "the folder of its files; give its containers workingDir, or use torchq submit"
    )


def _phase(pod: PodState) -> str:
    if pod_lifecycle.is_alive(pod.histories):
        return "Pending" if pod_lifecycle.outcome(pod.containers, pod.histories) == "Pending" else "Running"
    if pod.failure is not None:
        return "Failed"
    if pod.stopping:
        return pod_lifecycle.outcome_without_restarts(pod.containers, pod.histories)
    return pod_lifecycle.outcome(pod.containers, pod.histories)


def _conditions(pod: PodState, phase: str, before: Iterable[Mapping[str, Any]], now: float) -> list[dict[str, Any]]:
    waiting = [name for name in pod.containers.init if not pod_lifecycle.has_succeeded(pod.histories[name])]
    unready = [name for name in pod.containers.main if not _is_running(pod.histories[name])]
    initialized = (
        condition("Initialized", False, "ContainersNotInitialized", _names("incomplete", waiting))
        if waiting
        else condition("Initialized", True)
    )
    if phase == "Succeeded":
        initialized = condition("Initialized", True, "PodCompleted")
        readiness = (False, "PodCompleted", "")
    elif phase == "Failed":
        readiness = (False, "PodFailed", "")
    else:
        readiness = (not unready, "ContainersNotReady" if unready else "", _names("unready", unready))
    updates = [
        condition("PodScheduled", True),
        initialized,
        condition("ContainersReady", *readiness),
        condition("Ready", *readiness),
        *restart_conditions(pod, phase),
    ]
    if pod.failure is not None and pod.failure.disruption:
        updates.append(condition(DISRUPTION_TARGET, True, pod.failure.disruption, pod.failure.message))
    if pod.missing_file:
        updates.append(condition(labels.FOLDER_UNKNOWN, True, "FileMissing", _advice(pod.missing_file)))
    if pod.port_problem:
        updates.append(condition(labels.PORT_SHARED, True, "PortShared", pod.port_problem))
    return merge_conditions(before, updates, now)


def _names(kind: str, names: Sequence[str]) -> str:
    return f"containers with {kind} status: [{' '.join(names)}]" if names else ""


def _container_status(pod: PodState, container: Mapping[str, Any], init: bool) -> dict[str, Any]:
    name = container["name"]
    history = pod.histories[name]
    state = _state(pod, name, history)
    ready = pod_lifecycle.has_succeeded(history) if init else "running" in state
    return {
        "name": name,
        "image": container.get("image", ""),
        "imageID": "",
        "ready": ready,
        "started": "running" in state,
        "restartCount": history[-1].restart if history else 0,
        "state": state,
        "lastState": _last_state(pod, name, history, state),
    }


def _state(pod: PodState, name: str, history: Sequence[Run]) -> dict[str, Any]:
    if not history:
        return _waiting(pod, name)
    last = history[-1]
    if last.ending is not None:
        if name in pod.ends_to_show:
            return _termination(pod, name, last, last.ending)
        if name in pod.start_problems and not pod.stopping:
            return _waiting(pod, name)
        if last.restart < pod.containers.first(name) and not pod.stopping:
            return _RESTARTING
        restart_at = None if pod.stopping else pod_lifecycle.restart_at(pod.containers, name, history)
        if restart_at is None:
            return _termination(pod, name, last, last.ending)
        message = "; ".join(filter(None, [_BACKING_OFF, pod.missing_file and _advice(pod.missing_file)]))
        return {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
    if last.started_at is None:
        return {"waiting": {"reason": "ContainerCreating"}}
    return {"running": {"startedAt": timestamps.format_time(last.started_at)}}


def _waiting(pod: PodState, name: str) -> dict[str, Any]:
    problem = pod.start_problems.get(name)
    if problem:
        return {"waiting": {"reason": problem.reason, "message": problem.message}}
    initializing = name in pod.containers.main and not all(
        pod_lifecycle.has_succeeded(pod.histories[init]) for init in pod.containers.init
    )
    reason = {"reason": "PodInitializing" if initializing else "ContainerCreating"}
    return {"waiting": {**reason, "message": pod.volume_problem} if pod.volume_problem else reason}


def _last_state(pod: PodState, name: str, history: Sequence[Run], state: Mapping[str, Any]) -> dict[str, Any]:
    """Return how the last run ended that `state` does not show."""
    runs = history[:-1] if "waiting" not in state or (history and history[-1].alive) else history
    if not runs or runs[-1].ending is None:
        return {}
    return _termination(pod, name, runs[-1], runs[-1].ending)


def _termination(pod: PodState, name: str, run: Run, ending: Ending) -> dict[str, Any]:
    reason = ending.reason or ("Completed" if ending.exit_code == 0 else "Error")
    fields = {
        "exitCode": ending.exit_code,
        "reason": reason,
        "signal": ending.signal,
        "message": excerpts.excerpt(ending.message or pod.last_output.get((name, run.restart), ""), _LONGEST_MESSAGE),
        "startedAt": timestamps.format_time(run.started_at) if run.started_at is not None else None,
        "finishedAt": timestamps.format_time(ending.finished_at),
    }
    return {"terminated": {name: value for name, value in fields.items() if value or name == "exitCode"}}


def _is_running(history: Sequence[Run]) -> bool:
    return bool(history) and history[-1].alive and history[-1].started_at is not None
