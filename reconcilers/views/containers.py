"""The container that trains, and the port on which its rank 0 listens.

One rule: pure, over opaque pod specs. A template that crds accepted has at least one container, each with a name.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from crds.torchjob import processes

GATE = "torchq-start"
"""The name of the init container that waits until the pod may start, and of the volume that signals the start."""
RESTART_AGENT = "torchq-restart"
"""The name of the init container that restarts all containers of the pod on request, and of its volume."""
PORT_NAME = "torchjob-port"
DEFAULT_PORT = 23456


def main(pod_spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the container whose exit code decides the outcome of the pod."""
    return processes.main_container(pod_spec)


def main_state(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state of the main container; empty if the node has not reported one."""
    state: Mapping[str, Any] = status_of(main(pod["spec"])["name"], pod.get("status") or {}).get("state") or {}
    return state


def status_of(name: str, pod_status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the status of one container; empty if there is none."""
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
