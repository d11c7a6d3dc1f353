"""What keeps a pod from running, in a word and a sentence.

One rule: pure, over a pod as the API server shows it; what kubelet, scheduler and node say themselves.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from crds import excerpts
from kube.api import Manifest
from reconcilers.views import containers, pod_outcome

ON_ITS_WAY = frozenset({"", "ContainerCreating", "PodInitializing"})
"""What every container waits for at first; whatever else is known of its pod says more."""
LONGEST = 500
"""Characters of a message."""


@dataclass(frozen=True, slots=True)
class Ailment:
    """Why a pod does not run."""

    reason: str
    message: str = ""

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}" if self.message else self.reason


def of(pod: Manifest) -> Ailment | None:
    """The first thing that is known against a pod; None if it runs, or has succeeded."""
    status, phase = pod.get("status") or {}, pod_outcome.of(pod)
    if "deletionTimestamp" in pod["metadata"]:
        return Ailment("Terminating", _held(pod))
    if phase == "Succeeded":
        return None
    if phase == "Failed":
        return _ended(pod, status)
    found = next(_waiting(status), None) or _unscheduled(status) or _gate(status)
    return found or (_crashed(pod) if phase == "Running" else _on_its_way(pod))


def _held(pod: Manifest) -> str:
    finalizers = pod["metadata"].get("finalizers") or ()
    return f"held by the finalizer {finalizers[0]}" if finalizers else ""


def _ended(pod: Manifest, status: Mapping[str, Any]) -> Ailment:
    """The pod's own reason, or that of its main container, if that failed, or of the first one that did."""
    states = (pod_outcome.main_state(pod), *(each.get("state") or {} for each in _containers(status)))
    ended = (each["terminated"] for each in states if "terminated" in each)
    worst: Mapping[str, Any] = next((each for each in ended if each.get("exitCode") != 0), {})
    reason = status.get("reason") or worst.get("reason") or "Failed"
    code = f"exit code {worst['exitCode']}" if "exitCode" in worst else ""
    return Ailment(str(reason), _short(status.get("message")) or code)


def _waiting(status: Mapping[str, Any]) -> Iterator[Ailment]:
    """Of containers that wait for something that may never come; init containers first."""
    for each in _containers(status):
        waits = (each.get("state") or {}).get("waiting") or {}
        if waits.get("reason", "") not in ON_ITS_WAY:
            yield Ailment(waits["reason"], _short(waits.get("message")))


def _unscheduled(status: Mapping[str, Any]) -> Ailment | None:
    conditions: Iterable[Mapping[str, Any]] = status.get("conditions") or ()
    against = next((each for each in conditions if each["type"] == "PodScheduled" and each["status"] == "False"), None)
    return Ailment(against.get("reason") or "Unschedulable", _short(against.get("message"))) if against else None


def _gate(status: Mapping[str, Any]) -> Ailment | None:
    """Its own init container holds it back until its upstreams have come so far."""
    states = {each["name"]: each.get("state") or {} for each in status.get("initContainerStatuses") or ()}
    closed = "running" in states.get(containers.GATE, {})
    return Ailment("StartGate", "its upstreams are not there yet") if closed else None


def _crashed(pod: Manifest) -> Ailment | None:
    """Its main container has failed: for good, or its node has not said yet what it does about that."""
    ended = pod_outcome.main_state(pod).get("terminated") or {}
    return Ailment(ended.get("reason") or "Error", f"exit code {ended['exitCode']}") if ended.get("exitCode") else None


def _on_its_way(pod: Manifest) -> Ailment:
    if not pod["spec"].get("nodeName"):
        return Ailment("Pending", "not bound to a node yet")
    waits = pod_outcome.main_state(pod).get("waiting") or {}
    return Ailment(waits.get("reason") or "Pending", _short(waits.get("message")) or _initializing(pod))


def _initializing(pod: Manifest) -> str:
    """Which of its init containers is at work: the last one that runs, since sidecars run on."""
    states = (pod.get("status") or {}).get("initContainerStatuses") or ()
    running = [each["name"] for each in states if "running" in (each.get("state") or {})]
    return f"its init container {running[-1]} runs" if running else ""


def is_up(pod: Manifest) -> bool:
    """Whether the main container of a pod runs, or has come to a good end; whoever says nothing of it goes by the
    pod's phase.

    A pod's phase stays Running while a container that crashed waits to be started again, or for its image, and while
    another one runs: that is no training. A sidecar that crashes is none of ours.
    """
    phase = (pod.get("status") or {}).get("phase")
    return phase == "Running" and "waiting" not in pod_outcome.main_state(pod) and not _crashed(pod)


def _containers(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()


def _short(message: object) -> str:
    """One line of it."""
    return excerpts.excerpt(excerpts.one_line(message or ""), LONGEST)
