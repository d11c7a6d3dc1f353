"""The columns of `kubectl get pods`.

One rule: the status column has the most specific reason: a container that cannot start is more specific than the phase.
"""

from collections.abc import Iterator
from typing import Any

from embedded.apiserver.kinds.printing import ages
from embedded.apiserver.kinds.printing.printer_columns import (
    NONE,
    age_column,
    column,
    get_spec,
    get_status,
    time_column,
)
from kube.api import Manifest

_OVER = ("Succeeded", "Failed")


def _sidecars(pod: Manifest) -> set[str]:
    """Return the names of the init containers that run beside the other containers."""
    return {
        container["name"]
        for container in get_spec(pod).get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    }


def _condition(pod: Manifest, kind: str) -> dict[str, Any]:
    return next((c for c in get_status(pod).get("conditions") or () if c.get("type") == kind), {})


def status_of(pod: Manifest) -> str:
    """Return the status of a pod in one word."""
    status = get_status(pod)
    status_text = status.get("reason") or status.get("phase") or "Unknown"
    if _condition(pod, "PodScheduled").get("reason") == "SchedulingGated":
        status_text = "SchedulingGated"
    initializing = _initializing(pod)
    if not initializing or _condition(pod, "Initialized").get("status") == "True":
        status_text = _container_status(pod, status_text)
    else:
        status_text = initializing
    if pod["metadata"].get("deletionTimestamp"):
        over = status.get("phase") in _OVER
        return "Unknown" if status.get("reason") == "NodeLost" else status_text if over else "Terminating"
    return status_text


def _initializing(pod: Manifest) -> str:
    """Return the status of the first init container that is not complete; empty if all are complete."""
    sidecars = _sidecars(pod)
    for index, container in enumerate(get_status(pod).get("initContainerStatuses") or ()):
        ended, waiting = _state(container, "terminated"), _state(container, "waiting")
        if ended is not None and ended.get("exitCode", 0) == 0:
            continue
        if container["name"] in sidecars and container.get("started"):
            continue
        if ended is not None:
            return "Init:" + (ended.get("reason") or _exit_text(ended))
        if waiting and waiting.get("reason") not in {None, "", "PodInitializing"}:
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{len(get_spec(pod).get('initContainers') or ())}"
    return ""


def _container_status(pod: Manifest, default: str) -> str:
    """Return the status of the first container that is waiting for a reason or has ended, else the default."""
    running = False
    for container in reversed(get_status(pod).get("containerStatuses") or ()):
        waiting, ended = _state(container, "waiting"), _state(container, "terminated")
        if waiting and waiting.get("reason"):
            default = waiting["reason"]
        elif ended is not None:
            default = ended.get("reason") or _exit_text(ended)
        elif container.get("ready") and _state(container, "running") is not None:
            running = True
    if default == "Completed" and running:
        return "Running" if _condition(pod, "Ready").get("status") == "True" else "NotReady"
    return default


def _state(container: dict[str, Any], name: str) -> dict[str, Any] | None:
    state: dict[str, Any] | None = (container.get("state") or {}).get(name)
    return state


def _exit_text(ended: dict[str, Any]) -> str:
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"


def _relevant_statuses(pod: Manifest) -> Iterator[dict[str, Any]]:
    """Yield the statuses of the containers that count for READY and RESTARTS."""
    sidecars = _sidecars(pod)
    for container in get_status(pod).get("initContainerStatuses") or ():
        if container["name"] in sidecars:
            yield container
    yield from get_status(pod).get("containerStatuses") or ()


def _ready(pod: Manifest) -> str:
    number = len(get_spec(pod).get("containers") or ()) + len(_sidecars(pod))
    ready = [each for each in _relevant_statuses(pod) if each.get("ready") and _state(each, "running") is not None]
    return f"{len(ready)}/{number}"


def _restarts(pod: Manifest, now: float) -> str:
    initializing = bool(_initializing(pod)) and _condition(pod, "Initialized").get("status") != "True"
    initial = get_status(pod).get("initContainerStatuses") or ()
    containers = list(initial if initializing else _relevant_statuses(pod))
    number = sum(container.get("restartCount", 0) for container in containers)
    last = [(container.get("lastState") or {}).get("terminated") or {} for container in containers]
    times = [state["finishedAt"] for state in last if state.get("finishedAt")]
    return f"{number} ({ages.ago(max(times), now)} ago)" if number and times else str(number)


def _gates(pod: Manifest) -> str:
    gates = get_spec(pod).get("readinessGates") or ()
    met = sum(_condition(pod, gate.get("conditionType", "")).get("status") == "True" for gate in gates)
    return f"{met}/{len(gates)}" if gates else NONE


COLUMNS = [
    column("Ready", _ready),
    column("Status", status_of),
    time_column("Restarts", _restarts),
    age_column(),
    column("IP", lambda pod: get_status(pod).get("podIP") or NONE, wide=True),
    column("Node", lambda pod: get_spec(pod).get("nodeName") or NONE, wide=True),
    column("Nominated Node", lambda pod: get_status(pod).get("nominatedNodeName") or NONE, wide=True),
    column("Readiness Gates", _gates, wide=True),
]
