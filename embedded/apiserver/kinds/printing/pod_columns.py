"""The columns of `kubectl get pods`.

One rule: one word tells what a pod is about, and it is the most telling one: a container that cannot start says more
than the phase.
"""

from collections.abc import Iterator
from typing import Any

from embedded.apiserver.kinds.printing import ages
from embedded.apiserver.kinds.printing.columns import age, plain, timed
from kube.api import Manifest

NONE = "<none>"
_OVER = ("Succeeded", "Failed")


def _spec(pod: Manifest) -> dict[str, Any]:
    return pod.get("spec") or {}


def _status(pod: Manifest) -> dict[str, Any]:
    return pod.get("status") or {}


def _sidecars(pod: Manifest) -> set[str]:
    """Init containers that run beside the others."""
    return {each["name"] for each in _spec(pod).get("initContainers") or () if each.get("restartPolicy") == "Always"}


def _condition(pod: Manifest, kind: str) -> dict[str, Any]:
    return next((c for c in _status(pod).get("conditions") or () if c.get("type") == kind), {})


def word(pod: Manifest) -> str:
    """What a pod is about, in one word."""
    status = _status(pod)
    said = status.get("reason") or status.get("phase") or "Unknown"
    if _condition(pod, "PodScheduled").get("reason") == "SchedulingGated":
        said = "SchedulingGated"
    initializing = _initializing(pod)
    if not initializing or _condition(pod, "Initialized").get("status") == "True":
        said = _main_word(pod, said)
    else:
        said = initializing
    if pod["metadata"].get("deletionTimestamp"):
        over = status.get("phase") in _OVER
        return "Unknown" if status.get("reason") == "NodeLost" else said if over else "Terminating"
    return said


def _initializing(pod: Manifest) -> str:
    """The word for the first init container that is not done; empty if all are."""
    sidecars = _sidecars(pod)
    for index, container in enumerate(_status(pod).get("initContainerStatuses") or ()):
        ended, waiting = _state(container, "terminated"), _state(container, "waiting")
        if ended is not None and ended.get("exitCode", 0) == 0:
            continue
        if container["name"] in sidecars and container.get("started"):
            continue
        if ended is not None:
            return "Init:" + (ended.get("reason") or _how(ended))
        if waiting and waiting.get("reason") not in {None, "", "PodInitializing"}:
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{len(_spec(pod).get('initContainers') or ())}"
    return ""


def _main_word(pod: Manifest, said: str) -> str:
    """The word of the first container that has one to say."""
    running = False
    for container in reversed(_status(pod).get("containerStatuses") or ()):
        waiting, ended = _state(container, "waiting"), _state(container, "terminated")
        if waiting and waiting.get("reason"):
            said = waiting["reason"]
        elif ended is not None:
            said = ended.get("reason") or _how(ended)
        elif container.get("ready") and _state(container, "running") is not None:
            running = True
    if said == "Completed" and running:
        return "Running" if _condition(pod, "Ready").get("status") == "True" else "NotReady"
    return said


def _state(container: dict[str, Any], name: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = (container.get("state") or {}).get(name)
    return found


def _how(ended: dict[str, Any]) -> str:
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"


def _counted(pod: Manifest) -> Iterator[dict[str, Any]]:
    """Statuses of the containers that READY and RESTARTS are about."""
    sidecars = _sidecars(pod)
    for container in _status(pod).get("initContainerStatuses") or ():
        if container["name"] in sidecars:
            yield container
    yield from _status(pod).get("containerStatuses") or ()


def _ready(pod: Manifest) -> str:
    number = len(_spec(pod).get("containers") or ()) + len(_sidecars(pod))
    ready = sum(1 for each in _counted(pod) if each.get("ready") and _state(each, "running") is not None)
    return f"{ready}/{number}"


def _restarts(pod: Manifest, now: float) -> str:
    initializing = bool(_initializing(pod)) and _condition(pod, "Initialized").get("status") != "True"
    counted = list(_status(pod).get("initContainerStatuses") or ()) if initializing else list(_counted(pod))
    number = sum(each.get("restartCount", 0) for each in counted)
    last = [(each.get("lastState") or {}).get("terminated") or {} for each in counted]
    times = [each["finishedAt"] for each in last if each.get("finishedAt")]
    return f"{number} ({ages.ago(max(times), now)} ago)" if number and times else str(number)


def _gates(pod: Manifest) -> str:
    gates = _spec(pod).get("readinessGates") or ()
    met = sum(_condition(pod, gate.get("conditionType", "")).get("status") == "True" for gate in gates)
    return f"{met}/{len(gates)}" if gates else NONE


COLUMNS = [
    plain("Ready", _ready),
    plain("Status", word),
    timed("Restarts", _restarts),
    age(),
    plain("IP", lambda pod: _status(pod).get("podIP") or NONE, wide=True),
    plain("Node", lambda pod: _spec(pod).get("nodeName") or NONE, wide=True),
    plain("Nominated Node", lambda pod: _status(pod).get("nominatedNodeName") or NONE, wide=True),
    plain("Readiness Gates", _gates, wide=True),
]
