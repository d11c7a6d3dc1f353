"""The container that trains, and the port on which its rank 0 listens.

One rule: pure, over opaque pod specs. A template that crds accepted has at least one container, each with a name.
"""

import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import orjson

from crds import excerpts, labels, timestamps
from crds.torchjob import demand, launched_processes, memory_growth

GATE = "torchq-start"
"""The name of the init container that waits until the pod may start, and of the volume that signals the start."""
RESTART_AGENT = "torchq-restart"
"""The name of the init container that restarts all containers of the pod on request, and of its volume."""
PORT_NAME = demand.PORT_NAME
DEFAULT_PORT = 23456


LONGEST = 300
"""The largest number of characters of a message, which the pods of a job share."""
LACKS_SH, LACKS_SLEEP = "the image has no sh", "the image has no sleep"
_NOT_STARTED = frozenset({"StartError", "ContainerCannotRun"})
_NO_SH = re.compile(r"\bsh\b.*(executable file|no such file or directory)", re.IGNORECASE)
_NO_PROGRAM = 127
"""The exit code of the agent if its shell does not find `sleep`; container runtimes have it, too."""


Requests = tuple[tuple[str, int], ...]
"""Requested amounts as a hashable value. Most pods of a job request the same amounts, which are stored once."""
LONGEST_CACHED = 4096
"""The largest JSON of requests, in bytes, whose result is cached."""
MOST_CONTAINERS = 16
"""The largest number of containers of a pod whose result is cached."""


def main(pod_spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the container whose exit code decides the outcome of the pod."""
    return launched_processes.main_container(pod_spec)


def main_state(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state of the main container; empty if the node has not reported the state."""
    state: Mapping[str, Any] = status_of(main(pod["spec"])["name"], pod.get("status") or {}).get("state") or {}
    return state


def status_of(name: str, pod_status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the status of one container; empty if the container has no status."""
    statuses: Iterable[Mapping[str, Any]] = pod_status.get("containerStatuses") or ()
    return next((each for each in statuses if each["name"] == name), {})


def all_containers(pod_spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield all containers, init containers first."""
    yield from pod_spec.get("initContainers") or ()
    yield from pod_spec["containers"]


def has_restart_agent(pod_spec: Mapping[str, Any]) -> bool:
    """Return whether a pod has a restart agent."""
    return any(container["name"] == RESTART_AGENT for container in pod_spec.get("initContainers") or ())


def ended_well(pod_status: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the containers that have ended with exit code 0, without init containers."""
    states = {each["name"]: each.get("state") or {} for each in pod_status.get("containerStatuses") or ()}
    return tuple(name for name, state in states.items() if (state.get("terminated") or {}).get("exitCode") == 0)


def add_helper(spec: dict[str, Any], folder: str, file: str, annotation: str, **fields: Any) -> None:
    """Add a container of torchq to a fresh copy of a template, before all other init containers. The new container has
    the image of the main container, and a folder with a file that follows an annotation of the pod; the volume has
    the name of the container.
    """
    trains, name = main(spec), fields["name"]
    inherited: dict[str, Any] = {
        field: trains[field] for field in ("imagePullPolicy", "securityContext") if field in trains
    }
    mounts = [{"name": name, "mountPath": folder, "readOnly": True}]
    helper = {"image": trains.get("image", ""), **inherited, **fields, "volumeMounts": mounts}
    followed = {"path": file, "fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}}
    spec["initContainers"] = [helper, *(spec.get("initContainers") or ())]
    spec["volumes"] = [*(spec.get("volumes") or ()), {"name": name, "downwardAPI": {"items": [followed]}}]


def template_port(pod_spec: Mapping[str, Any]) -> int:
    """Return the port that a template declares as `torchjob-port`, else 23456."""
    ports = (port for container in pod_spec["containers"] for port in container.get("ports") or ())
    return next((int(port["containerPort"]) for port in ports if port.get("name") == PORT_NAME), DEFAULT_PORT)


def declare_port(pod_spec: dict[str, Any], port: int, *, on_host: bool) -> None:
    """Declare `torchjob-port` in a fresh copy of a template that does not declare it.

    With `on_host`, the main container declares it, so that the scheduler keeps other pods off the node's port.
    """
    declares = any(_is_ours(port) for container in pod_spec["containers"] for port in container.get("ports") or ())
    if declares and not on_host:
        return
    for container in pod_spec["containers"]:
        container["ports"] = [entry for entry in container.get("ports") or () if not _is_ours(entry)]
    declared = {"name": PORT_NAME, "containerPort": port, "protocol": "TCP"}
    main(pod_spec)["ports"].append(declared | ({"hostPort": port} if on_host else {}))


def _is_ours(port: Mapping[str, Any]) -> bool:
    return port.get("name") == PORT_NAME


def closed_since(metadata: Mapping[str, Any], spec: Mapping[str, Any], status: Mapping[str, Any]) -> float | None:
    """Return when the pod reached its closed gate, in seconds since the epoch; infinity if it has not reached it, and
    None if no gate is closed."""
    has_gate = any(container["name"] == GATE for container in spec.get("initContainers") or ())
    if not has_gate or (metadata.get("annotations") or {}).get(labels.START):
        return None
    statuses = status.get("initContainerStatuses") or ()
    states = (entry.get("state") or {} for entry in statuses if entry["name"] == GATE)
    running: Mapping[str, Any] = next(states, {}).get("running") or {}
    reached = timestamps.seconds_or_none(running.get("startedAt"))
    return math.inf if reached is None else reached


def find_agent_failure(status: Mapping[str, Any]) -> str:
    """Return why a pod's agent cannot run; empty if there is no reason."""
    for entry in status.get("initContainerStatuses") or ():
        state, before = entry.get("state") or {}, entry.get("lastState") or {}
        if entry.get("name") == RESTART_AGENT and "running" not in state:
            return _explain(state.get("terminated") or before.get("terminated") or {})
    return ""


def _explain(ended: Mapping[str, Any]) -> str:
    said, is_not_started = excerpts.one_line(ended.get("message") or ""), ended.get("reason") in _NOT_STARTED
    if not is_not_started:
        return LACKS_SLEEP if ended.get("exitCode") == _NO_PROGRAM else ""
    return LACKS_SH if _NO_SH.search(said) else sys.intern(excerpts.excerpt(said or ended["reason"], LONGEST))


def read(spec: Mapping[str, Any]) -> Requests:
    """Return the requests of a pod (`demand.pod_demand`). If the pod requests too many resources, the result has one
    resource more than a job can be charged for."""
    if sum(len(spec.get(name) or ()) for name in ("containers", "initContainers")) > MOST_CONTAINERS:
        return _compute_requests(spec)
    parts = {
        name: [demand.demand_fields(container) for container in spec.get(name) or ()]
        for name in ("containers", "initContainers")
    }
    text = orjson.dumps(parts | {"resources": spec.get("resources"), "overhead": spec.get("overhead")})
    return _parse_requests(text) if len(text) <= LONGEST_CACHED else _compute_requests(spec)


def main_memory(spec: Mapping[str, Any]) -> int:
    """Return the memory in bytes that the main container asks for, the larger of its request and its limit; else 0."""
    try:
        return memory_growth.declared(spec)
    except (ValueError, TypeError, AttributeError):
        return 0


@lru_cache(1024)
def _parse_requests(text: bytes) -> Requests:
    """Return the requests of a pod spec that is reduced to the fields of requests. The result is cached: it is the same
    for all pods of a task at each of their changes.
    """
    return _compute_requests(orjson.loads(text))


def _compute_requests(spec: Mapping[str, Any]) -> Requests:
    try:
        amounts = demand.pod_demand(spec)
    except (ValueError, TypeError, AttributeError):  # the API server of today accepts no such spec
        return ()
    return tuple(sorted(amounts.items())[: demand.MOST_NAMES + 1])
