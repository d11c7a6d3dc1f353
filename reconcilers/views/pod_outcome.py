"""The outcome of a pod: the end of the main container decides it, whatever the pod's other containers do.

One rule: pure, over a pod as the API server shows it. An end is a success only if nothing shows that it was asked for:
training code saves and exits with 0 when it is asked to stop.

Kubernetes calls a pod running as long as any of its containers runs, and failed if any has failed. A job that followed
that would wait for its log shipper, or fail with it.

    what shows that the pod was asked to end             since when
    it is being deleted, with its own grace              its deletionTimestamp, less the grace
    it is being deleted, without a grace                 unknown: a kubelet that has ended a pod deletes it once more,
                                                         with a grace of 0, which moves the time to now
    it is being deleted, with another grace than its own unknown: an earlier request may have had a longer one
    the condition DisruptionTarget                       its lastTransitionTime; less the grace for a kubelet, which
                                                         sets it when it has ended the pod
    a reason of the pod itself, such as Evicted          unknown
    the mark of its node (`pod_result`)                   unknown

`pod_history` adds what earlier objects of the same pod have shown.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntFlag, auto
from typing import Any

from crds import timestamps
from kube.api import Manifest
from reconcilers.views import containers, pod_code, pod_result

FINISHED = ("Succeeded", "Failed")
OWN_LIMIT_PHRASES = (
    "exceeds the limit",
    "exceeds the total limit of containers",
    "exceeded its local ephemeral storage limit",
)
"""The phrases of a kubelet that evicts a pod because of the pod's own limits (pkg/kubelet/eviction). A template can
cause such an eviction at will. An eviction because the node lacks resources has other words and a DisruptionTarget
condition."""
UNKNOWN = -math.inf
"""The time of a request to end that may have been made at any time."""
NODES_CODES = 128
"""The first exit code, beside 0, that the end of a container by its node may have."""
OOM_KILLED = "OOMKilled"
"""The reason of a container that was killed because it had used up its memory, or any of its processes."""
BY_KUBELET = "TerminationByKubelet"
"""The reason of DisruptionTarget for a pod that its kubelet ends for another pod, or because of a shutdown."""
RESTARTING_ALL = "RestartingAllContainers"
"""The reason of a container that its kubelet has ended in order to restart all containers of the pod."""
COUNTED = (RESTARTING_ALL, "PodInitializing")
"""The reasons of a waiting container whose kubelet has counted the restart already."""


class PodEnd(IntFlag):
    """The knowledge about the end of a pod. The value is one number, because there may be very many views of pods."""

    TERMINATED = auto()
    """The present run of the main container has ended."""
    AWAITS_RESTART = auto()
    """It has failed, and its node will start and count the next run."""
    COMPLETED = auto()
    """It has ended for good with exit code 0, asked or not."""
    UNASKED = auto()
    """Nothing but a deletion shows that this end was asked for."""
    PROVED = auto()
    """It ended with 0 before anything asked it to."""
    SETTLES = auto()
    """The node may still say that the end was its own deed (`pod_history.settle`)."""
    UNREPORTED = auto()
    """The node reported the pod running without its main container, and has not reported it running since."""
    CLOSING = auto()
    """All containers of the pod have ended for good, and its node has yet to write the last phase."""


NOTHING = PodEnd(0)


@dataclass(frozen=True, slots=True)
class PodOutcome:
    """The outcome of a pod as one object shows it."""

    phase: str
    """The pod's phase with regard to its main container."""
    end: PodEnd = NOTHING
    deletion_asked: float | None = None
    """When the deletion of the pod was asked for, in seconds since the epoch, or `UNKNOWN`; None if it was not asked
    for."""


def effective_phase(pod: Manifest) -> str:
    """Return the pod's phase with regard to its main container.

    A pod that is being deleted has the phase that its node reports, with two exceptions. A main container that ended
    well because it was asked to stop has not completed its work: it counts as failed. A container that had
    completed its work before is a success.
    """
    return outcome(pod).phase


def outcome(pod: Manifest) -> PodOutcome:
    """Return the outcome of a pod."""
    status: Mapping[str, Any] = pod.get("status") or {}
    phase: str = status.get("phase") or "Pending"
    asked = _deletion_request(pod)
    if phase == "Pending" and asked is None and pod_code.find_failure(status):
        return PodOutcome("Failed")  # its node would start it again and again
    main_status = containers.status_of(containers.main(pod["spec"])["name"], status)
    terminated: Mapping[str, Any] = (main_status.get("state") or {}).get("terminated") or {}
    code = terminated.get("exitCode")
    end = PodEnd.TERMINATED if code is not None else NOTHING
    if phase == "Running" and not main_status and "startTime" in status:
        end |= PodEnd.UNREPORTED
    if phase == "Running" and _is_doubtful(terminated) and asked is None:
        end |= PodEnd.SETTLES
    if phase == "Running" and _awaits_restart(pod["spec"], main_status):
        return PodOutcome(phase, end | PodEnd.AWAITS_RESTART, asked)
    if phase == "Running" and _have_all_ended(status):
        end |= PodEnd.CLOSING
    if phase not in ("Running", *FINISHED) or (phase == "Running" and code is None):
        return PodOutcome(phase, end, asked)
    if code != 0 and not (code is None and phase == "Succeeded"):
        return PodOutcome("Running" if phase == "Running" and asked is not None else "Failed", end, asked)
    return _completed(pod, terminated, PodOutcome(phase, end | PodEnd.COMPLETED, asked))


def _completed(pod: Manifest, terminated: Mapping[str, Any], reported: PodOutcome) -> PodOutcome:
    """Return the outcome of a pod whose main container has ended with 0 for good, from the reported phase."""
    ended = timestamps.seconds_or_none(terminated.get("finishedAt"))
    end = reported.end
    if all(is_before(ended, asked) for asked in _other_requests(pod, terminated)):
        end |= PodEnd.UNASKED
    if PodEnd.UNASKED in end and reported.deletion_asked is None:
        end |= PodEnd.PROVED
    if PodEnd.UNASKED in end and is_before(ended, reported.deletion_asked):
        return replace(reported, phase="Succeeded", end=end)
    is_going = reported.phase == "Running" and reported.deletion_asked is not None
    return replace(reported, phase="Running" if is_going else "Failed", end=end)


def is_before(ended: float | None, asked: float | None) -> bool:
    """Return whether a container ended before a request to end, which may not have been made.

    Times are in whole seconds: an end in the same second counts as asked for.
    """
    return asked is None or (ended is not None and ended < asked)


def exceeds_own_limit(message: str) -> bool:
    """Return whether a kubelet reports that an evicted pod exceeded its own limits."""
    return any(phrase in message for phrase in OWN_LIMIT_PHRASES)


def is_disrupted(status: Mapping[str, Any]) -> bool:
    """Return whether a pod's condition DisruptionTarget says why it was asked to end."""
    return _disruption(status) is not None


def _disruption(status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    targets = (each for each in status.get("conditions") or () if each["type"] == "DisruptionTarget")
    return next((each for each in targets if each["status"] == "True"), None)


def _other_requests(pod: Manifest, terminated: Mapping[str, Any]) -> Iterator[float]:
    """Yield the times of everything but a deletion that shows a request to end the pod."""
    status: Mapping[str, Any] = pod.get("status") or {}
    target = _disruption(status)
    if target is not None:
        since = timestamps.seconds_or_none(target.get("lastTransitionTime"))
        grace = _own_grace(pod) if target.get("reason") == BY_KUBELET else 0.0
        yield UNKNOWN if since is None else since - grace
    elif status.get("reason"):
        yield UNKNOWN
    if pod_result.is_marked(terminated):
        yield UNKNOWN


def _deletion_request(pod: Manifest) -> float | None:
    """Return when the deletion of a pod was asked for; `UNKNOWN` if an earlier request may have come before."""
    metadata = pod["metadata"]
    if "deletionTimestamp" not in metadata:
        return None
    due, grace = timestamps.seconds_or_none(metadata["deletionTimestamp"]), metadata.get("deletionGracePeriodSeconds")
    return UNKNOWN if due is None or not grace or grace != _own_grace(pod) else due - float(grace)


def _own_grace(pod: Manifest) -> float:
    """Return the grace of a pod in seconds, as its spec gives it."""
    seconds = pod["spec"].get("terminationGracePeriodSeconds")
    return 30.0 if seconds is None else float(seconds)


def _is_doubtful(terminated: Mapping[str, Any]) -> bool:
    """Return whether the end of a container may be the deed of its node."""
    code = terminated.get("exitCode")
    return code is not None and (code == 0 or code >= NODES_CODES) and terminated.get("reason") != OOM_KILLED


def _have_all_ended(status: Mapping[str, Any]) -> bool:
    """Return whether all containers have ended; a node ends the sidecars among the init containers at the same time."""
    shown = status.get("containerStatuses") or ()
    return bool(shown) and all("terminated" in (each.get("state") or {}) for each in shown)


def _awaits_restart(spec: Mapping[str, Any], main_status: Mapping[str, Any]) -> bool:
    """Return whether the main container has ended, its node will start it again, and has not counted that yet."""
    state = main_status.get("state") or {}
    if "waiting" in state:
        if state["waiting"].get("reason") in COUNTED:
            return False
        state = main_status.get("lastState") or {}
    ended = state.get("terminated")
    if ended is None:
        return False
    return ended.get("reason") == RESTARTING_ALL or _is_restarted(spec, ended.get("exitCode") or 0)


def _is_restarted(spec: Mapping[str, Any], code: int) -> bool:
    """Return whether the node restarts the main container after an exit with this code."""
    main = containers.main(spec)
    if any(_applies(rule.get("exitCodes") or {}, code) for rule in main.get("restartPolicyRules") or ()):
        return True
    policy = main.get("restartPolicy") or spec.get("restartPolicy") or "Always"
    return bool(policy == "Always" or (policy == "OnFailure" and code))


def _applies(codes: Mapping[str, Any], code: int) -> bool:
    return (code in (codes.get("values") or ())) == (codes.get("operator") == "In")
