"""A pod's status from what its containers do, in the words of the kubelet.

One rule: pure. The status before goes in, so that the times of conditions stand for changes, and what others wrote
stays.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from crds import excerpts, labels
from embedded.node.runs.container_runs import Ending, Run
from embedded.node.status import lifecycle, restarts
from embedded.node.status.lifecycle import Containers, Histories

ADDRESS = "127.0.0.1"
"""Every pod of the embedded node has the machine's loopback address."""

Status = dict[str, Any]

DISRUPTION_TARGET = "DisruptionTarget"
"""The condition of a pod that is ended for a reason that is not its own."""
_LONGEST_MESSAGE = 4096
"""As the kubelet's of a container that ended."""
_RESTARTING = {"waiting": {"reason": "Restarting", "message": "all containers of the pod are restarted in place"}}
_BACKING_OFF = "restarting the failed container after a wait"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a pod failed as a whole, whatever its containers did."""

    reason: str
    message: str
    disruption: str = ""
    """The reason of its condition DisruptionTarget; empty: it has none. It is shown, with reason and message, before
    the pod ends."""


@dataclass(frozen=True, slots=True)
class View:
    """What the status is made of."""

    containers: Containers
    spec: Mapping[str, Any]
    histories: Histories
    last_words: Mapping[tuple[str, int], str]
    """By container and restart: the end of the output of a run that failed and wants it as its message."""
    waiting: Mapping[str, str]
    """Why a container that should begin cannot yet, in a sentence."""
    stopping: bool
    verdict: Verdict | None = None
    missing_file: str = ""
    """The file for the lack of which a container failed in the empty folder of a pod that names no folder."""
    restart_wanted: str = ""
    """The generation for which the containers are to be restarted in place; empty for none."""


def running_status(view: View, before: Mapping[str, Any], now: float) -> Status:
    """The status of a pod on this node."""
    phase = _phase(view)
    status: Status = {
        "phase": phase,
        "startTime": before.get("startTime") or timestamp(now),
        "hostIP": ADDRESS,
        "podIP": ADDRESS,
        "podIPs": [{"ip": ADDRESS}],
        "containerStatuses": _statuses(view, "containers"),
        "conditions": _conditions(view, phase, before.get("conditions") or (), now),
    }
    if view.containers.init:
        status["initContainerStatuses"] = _statuses(view, "initContainers")
    if view.verdict is not None and (phase == "Failed" or view.verdict.disruption):
        status |= {"reason": view.verdict.reason, "message": view.verdict.message}
    return status


def refused_status(verdict: Verdict, before: Mapping[str, Any], now: float) -> Status:
    """The status of a pod this node does not run."""
    return {
        "phase": "Failed",
        "reason": verdict.reason,
        "message": verdict.message,
        "startTime": before.get("startTime") or timestamp(now),
    }


def restart_conditions(view: View, phase: str) -> list[dict[str, str]]:
    """What is to be said of restarts in place: a condition, or nothing."""
    verdict = restarts.verdict(view.containers, view.histories, view.restart_wanted, phase)
    return [] if verdict is None else [condition(labels.RESTARTED, *verdict)]


def _folder_conditions(missing: str) -> list[dict[str, str]]:
    return [condition(labels.FOLDER_UNKNOWN, True, "FileMissing", _advice(missing))] if missing else []


def _advice(missing: str) -> str:
    return (
        f"{missing} is missing: a job that is made by kubectl runs in an empty folder, as torchq does not know "
        "the folder of its files; give its containers workingDir, or use torchq submit"
    )


def differs(status: Status, before: Mapping[str, Any]) -> bool:
    """Whether anything in a status is new."""
    return any(before.get(name) != value for name, value in status.items())


def timestamp(moment: float) -> str:
    """Seconds since the epoch as a Kubernetes time."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind: str, true: bool, reason: str = "", message: str = "") -> dict[str, str]:
    """A pod condition that has no time yet."""
    found = {"type": kind, "status": "True" if true else "False", "reason": reason, "message": message}
    return {name: text for name, text in found.items() if text}


def sound(conditions: Any) -> list[Mapping[str, Any]]:
    """Those conditions that are some: others may write there too."""
    found = conditions if isinstance(conditions, list | tuple) else ()
    return [each for each in found if isinstance(each, Mapping) and isinstance(each.get("type"), str)]


def merge_conditions(
    before: Iterable[Mapping[str, Any]], wanted: Iterable[dict[str, str]], now: float
) -> list[dict[str, Any]]:
    """Conditions of others as they are, ours new; a time moves only with its condition's status."""
    known = {each["type"]: dict(each) for each in sound(before)}
    for new in wanted:
        old = known.get(new["type"], {})
        kept = old.get("lastTransitionTime") if old.get("status") == new["status"] else None
        known[new["type"]] = {**new, "lastTransitionTime": kept or timestamp(now)}
    return list(known.values())


def _phase(view: View) -> str:
    if lifecycle.alive(view.histories):
        return "Pending" if lifecycle.outcome(view.containers, view.histories) == "Pending" else "Running"
    if view.verdict is not None:
        return "Failed"
    if view.stopping:
        return lifecycle.stopped_outcome(view.containers, view.histories)
    return lifecycle.outcome(view.containers, view.histories)


def _conditions(view: View, phase: str, before: Iterable[Mapping[str, Any]], now: float) -> list[dict[str, Any]]:
    waiting = [name for name in view.containers.init if not lifecycle.succeeded(view.histories[name])]
    unready = [name for name in view.containers.main if not _running(view.histories[name])]
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
    ours = [
        condition("PodScheduled", True),
        initialized,
        condition("ContainersReady", *readiness),
        condition("Ready", *readiness),
        *restart_conditions(view, phase),
        *_target(view.verdict),
        *_folder_conditions(view.missing_file),
    ]
    return merge_conditions(before, ours, now)


def _target(verdict: Verdict | None) -> list[dict[str, str]]:
    if verdict is None or not verdict.disruption:
        return []
    return [condition(DISRUPTION_TARGET, True, verdict.disruption, verdict.message)]


def _names(word: str, names: Sequence[str]) -> str:
    return f"containers with {word} status: [{' '.join(names)}]" if names else ""


def _statuses(view: View, kind: str) -> list[dict[str, Any]]:
    return [_container_status(view, container, kind == "initContainers") for container in view.spec[kind]]


def _container_status(view: View, container: Mapping[str, Any], init: bool) -> dict[str, Any]:
    name = container["name"]
    history = view.histories[name]
    state = _state(view, name, history)
    ready = lifecycle.succeeded(history) if init else "running" in state
    return {
        "name": name,
        "image": container.get("image", ""),
        "imageID": "",
        "ready": ready,
        "started": "running" in state,
        "restartCount": history[-1].restart if history else 0,
        "state": state,
        "lastState": _last_state(view, name, history, state),
    }


def _state(view: View, name: str, history: Sequence[Run]) -> dict[str, Any]:
    if not history:
        return _waiting(view, name)
    last = history[-1]
    if last.ending is not None:
        if last.restart < view.containers.first(name) and not view.stopping:
            return _RESTARTING
        again = None if view.stopping else lifecycle.restart_at(view.containers, name, history)
        return _terminated(view, name, last, last.ending) if again is None else _backing_off(view)
    if last.started_at is None:
        return {"waiting": {"reason": "ContainerCreating"}}
    return {"running": {"startedAt": timestamp(last.started_at)}}


def _backing_off(view: View) -> dict[str, Any]:
    message = "; ".join(filter(None, [_BACKING_OFF, view.missing_file and _advice(view.missing_file)]))
    return {"waiting": {"reason": "CrashLoopBackOff", "message": message}}


def _waiting(view: View, name: str) -> dict[str, Any]:
    message = view.waiting.get(name)
    if message:
        return {"waiting": {"reason": "CreateContainerError", "message": message}}
    initializing = name in view.containers.main and not all(
        lifecycle.succeeded(view.histories[each]) for each in view.containers.init
    )
    return {"waiting": {"reason": "PodInitializing" if initializing else "ContainerCreating"}}


def _last_state(view: View, name: str, history: Sequence[Run], state: Mapping[str, Any]) -> dict[str, Any]:
    """How the run before ended: the one before the last if the last is shown as the state."""
    shown = history[:-1] if "waiting" not in state or (history and history[-1].alive) else history
    if not shown or shown[-1].ending is None:
        return {}
    return _terminated(view, name, shown[-1], shown[-1].ending)


def _terminated(view: View, name: str, run: Run, ending: Ending) -> dict[str, Any]:
    reason = ending.reason or ("Completed" if ending.exit_code == 0 else "Error")
    found = {
        "exitCode": ending.exit_code,
        "reason": reason,
        "signal": ending.signal,
        "message": excerpts.excerpt(ending.message or view.last_words.get((name, run.restart), ""), _LONGEST_MESSAGE),
        "startedAt": timestamp(run.started_at) if run.started_at is not None else None,
        "finishedAt": timestamp(ending.finished_at),
    }
    return {"terminated": {name: value for name, value in found.items() if value or name == "exitCode"}}


def _running(history: Sequence[Run]) -> bool:
    return bool(history) and history[-1].alive and history[-1].started_at is not None
