"""The problem that keeps a pod from running, as a reason and a message.

One rule: pure, over a pod as the API server shows it; the messages are those of the kubelet, the scheduler and the
node.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from crds import excerpts
from kube.api import Manifest
from reconcilers.views import containers, pod_code, pod_outcome

STARTUP_REASONS = frozenset({"", "ContainerCreating", "PodInitializing"})
"""The reasons for which every container waits at first. Any other fact about the pod explains more."""
MOST_NAMED = 3
LONGEST = 500
"""The largest number of characters of a message."""
UNSCHEDULABLE, SCHEDULABLE = "Unschedulable", "Schedulable"
"""Reasons of schedulers for pods without a node: it finds none; the pod would fit, but others of its gang do not
(Volcano)."""
_CAUSES = (
    "Insufficient",
    "fit failed",
    "taint",
    "selector",
    "affinity",
    "volume",
    "PersistentVolumeClaim",
    "free ports",
)
"""What the words of a scheduler about nodes contain, the most telling first."""
_OTHERS = (
    "waiting for minCount",
    "sibling pods",
    "rejection in PostFilter",
    "rejected due to timeout",
    "gang child pod",
)
"""What the words of schedulers about pods contain that only wait for others of their gang."""
_VAGUE = frozenset({UNSCHEDULABLE, "Pending", "Waiting", *STARTUP_REASONS})
SAYS_LITTLE = len(_CAUSES) + 1
"""The place of a problem without a cause."""
WAITS_FOR_OTHERS = len(_CAUSES) + 2
"""The place of a problem that says only that the pod waits for other pods."""


@dataclass(frozen=True, slots=True)
class PodProblem:
    """The reason why a pod does not run."""

    reason: str
    message: str = ""

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}" if self.message else self.reason


def find_problem(pod: Manifest) -> PodProblem | None:
    """Return the first problem of a pod; None if the pod runs or has succeeded."""
    status, phase = pod.get("status") or {}, pod_outcome.effective_phase(pod)
    if "deletionTimestamp" in pod["metadata"]:
        finalizers = pod["metadata"].get("finalizers") or ()
        return PodProblem("Terminating", f"held by the finalizer {finalizers[0]}" if finalizers else "")
    if phase == "Succeeded":
        return None
    if phase == "Failed":
        return _failure_problem(pod, status)
    problem = next(_waiting_problems(status), None) or _scheduling_problem(status) or _gate_problem(status)
    return problem or (_crash_problem(pod) if phase == "Running" else _startup_problem(pod))


def place(reason: str, message: str) -> int:
    """Return the place of a problem among the problems of a job's pods, the most telling first; WAITS_FOR_OTHERS is the
    last.

    One pod of a gang has the cause, and the scheduler says that the other pods wait for this pod.
    """
    if reason in (SCHEDULABLE, "StartGate"):
        return WAITS_FOR_OTHERS
    if reason == UNSCHEDULABLE:
        found = next((number for number, words in enumerate(_CAUSES) if words in message), None)
        if found is not None:
            return found
        if any(words in message for words in _OTHERS):
            return WAITS_FOR_OTHERS
    return SAYS_LITTLE if reason in _VAGUE else len(_CAUSES)


def _failure_problem(pod: Manifest, status: Mapping[str, Any]) -> PodProblem:
    """Return the pod's own reason, else the reason of its main container if that failed, else the reason of the first
    failed container."""
    if (failure := pod_code.find_failure(status)) is not None:
        return PodProblem(failure.reason, failure.message)
    states = (
        containers.main_state(pod),
        *(container_status.get("state") or {} for container_status in _containers(status)),
    )
    ended = (state["terminated"] for state in states if "terminated" in state)
    worst: Mapping[str, Any] = next((termination for termination in ended if termination.get("exitCode") != 0), {})
    reason = status.get("reason") or worst.get("reason") or "Failed"
    code = f"exit code {worst['exitCode']}" if "exitCode" in worst else ""
    return PodProblem(str(reason), _one_line(status.get("message")) or code)


def _waiting_problems(status: Mapping[str, Any]) -> Iterator[PodProblem]:
    """Yield the problems of containers that wait for an object that may never exist, init containers first."""
    for container_status in _containers(status):
        waits = (container_status.get("state") or {}).get("waiting") or {}
        if waits.get("reason", "") not in STARTUP_REASONS:
            yield PodProblem(waits["reason"], _one_line(waits.get("message")))


def _scheduling_problem(status: Mapping[str, Any]) -> PodProblem | None:
    conditions: Iterable[Mapping[str, Any]] = status.get("conditions") or ()
    against = next(
        (
            condition
            for condition in conditions
            if condition["type"] == "PodScheduled" and condition["status"] == "False"
        ),
        None,
    )
    return PodProblem(against.get("reason") or UNSCHEDULABLE, _one_line(against.get("message"))) if against else None


def _gate_problem(status: Mapping[str, Any]) -> PodProblem | None:
    """Return the problem of a pod whose start gate is closed: not all of its upstream tasks have progressed far
    enough."""
    states = {
        container_status["name"]: container_status.get("state") or {}
        for container_status in status.get("initContainerStatuses") or ()
    }
    closed = "running" in states.get(containers.GATE, {})
    return PodProblem("StartGate", "its upstream tasks have not progressed far enough") if closed else None


def _crash_problem(pod: Manifest) -> PodProblem | None:
    """Return the problem of a main container that has failed: for good, or until its node reports the next step."""
    ended = containers.main_state(pod).get("terminated") or {}
    return (
        PodProblem(ended.get("reason") or "Error", f"exit code {ended['exitCode']}") if ended.get("exitCode") else None
    )


def _startup_problem(pod: Manifest) -> PodProblem:
    if not pod["spec"].get("nodeName"):
        return PodProblem("Pending", "not bound to a node yet")
    if failure := containers.find_agent_failure(pod.get("status") or {}):
        return PodProblem("RestartAgent", failure)
    waits = containers.main_state(pod).get("waiting") or {}
    message = _one_line(waits.get("message")) or _init_container_message(pod) or _volume_message(pod)
    return PodProblem(waits.get("reason") or "Pending", message)


def _volume_message(pod: Manifest) -> str:
    """Return that a pod waits for its volumes or its network, with the ConfigMaps and Secrets that it needs: the status
    of a pod does not say that a ConfigMap or a Secret is missing."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    if not any(each["type"] == "PodReadyToStartContainers" and each["status"] == "False" for each in conditions):
        return ""
    names = [text for volume in pod["spec"].get("volumes") or () if (text := _source_of(volume))]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    needs = f"; it needs {', '.join(names[:MOST_NAMED])}{more}" if names else ""
    return f"its volumes or its network are not ready{needs}"


def _source_of(volume: Mapping[str, Any]) -> str:
    config, secret = volume.get("configMap") or {}, volume.get("secret") or {}
    if config.get("name") and not config.get("optional"):
        return f"ConfigMap {config['name']}"
    return f"Secret {secret['secretName']}" if secret.get("secretName") and not secret.get("optional") else ""


def _init_container_message(pod: Manifest) -> str:
    """Return which init container is at work: the last running container, because sidecars keep running."""
    running = [
        container_status["name"]
        for container_status in _init_containers(pod.get("status") or {})
        if "running" in (container_status.get("state") or {})
    ]
    return f"its init container {running[-1]} runs" if running else ""


def is_up(pod: Manifest) -> bool:
    """Return whether the main container runs, or has ended well. A pod without container states is judged by its phase.

    A pod's phase stays Running while a crashed container waits to be started again or for its image, and while another
    container runs. The job does not train then. The crash of a sidecar is ignored.
    """
    phase = (pod.get("status") or {}).get("phase")
    return phase == "Running" and "waiting" not in containers.main_state(pod) and not _crash_problem(pod)


def _containers(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from _init_containers(status)
    yield from status.get("containerStatuses") or ()


def _init_containers(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the states of init containers without the restart agent, whose restarts are no problem."""
    states = status.get("initContainerStatuses") or ()
    yield from (each for each in states if each["name"] != containers.RESTART_AGENT)


def _one_line(message: object) -> str:
    """Return the message as one line of limited length."""
    return excerpts.excerpt(excerpts.one_line(message or ""), LONGEST)
