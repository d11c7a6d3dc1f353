"""The outcome of a pod: the end of the main container decides it, whatever the pod's other containers do.

One rule: pure, over a pod as the API server shows it. Kubernetes calls a pod running as long as any of its containers
runs, and failed if any has failed. A job that followed that would wait for its log shipper, or fail with it.
"""

from collections.abc import Mapping
from typing import Any

from crds import timestamps
from kube.api import Manifest
from reconcilers.views import containers, pod_code

FINISHED = ("Succeeded", "Failed")
OWN_LIMIT_PHRASES = (
    "exceeds the limit",
    "exceeds the total limit of containers",
    "exceeded its local ephemeral storage limit",
)
"""The phrases of a kubelet that evicts a pod because of the pod's own limits (pkg/kubelet/eviction). A template can
cause such an eviction at will. An eviction because the node lacks resources has other words and a DisruptionTarget
condition."""


def effective_phase(pod: Manifest) -> str:
    """Return the pod's phase with regard to its main container.

    A pod that is being deleted has the phase that its node reports. One exception: a main container that ended well
    because it was asked to stop, also by the shutdown of its node, has not completed its work and counts as failed.
    """
    status: Mapping[str, Any] = pod.get("status") or {}
    phase: str = status.get("phase") or "Pending"
    if "deletionTimestamp" in pod["metadata"]:
        return "Failed" if phase == "Succeeded" and _was_stopped(pod) else phase
    if phase == "Pending" and pod_code.find_failure(status):  # its node would start it again and again
        return "Failed"
    if phase not in ("Running", "Failed"):
        return phase
    terminated: Mapping[str, Any] = main_state(pod).get("terminated") or {}
    code = terminated.get("exitCode")
    if phase == "Failed":
        return "Succeeded" if code == 0 and not _is_blamed(status, terminated) else phase
    if code is None or _is_restarted(pod["spec"], code):
        return phase
    return "Failed" if code or _is_blamed(status, terminated) else "Succeeded"


def main_state(pod: Manifest) -> Mapping[str, Any]:
    """Return the state of the main container; empty if the node has not reported one."""
    main = containers.main(pod["spec"])["name"]
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return next(
        (container_status.get("state") or {} for container_status in statuses if container_status["name"] == main), {}
    )


def exceeds_own_limit(message: str) -> bool:
    """Return whether a kubelet reports that an evicted pod exceeded its own limits."""
    return any(phrase in message for phrase in OWN_LIMIT_PHRASES)


def _was_stopped(pod: Manifest) -> bool:
    """Return whether the main container ended at or after the request to delete the pod; times are in whole seconds."""
    metadata, ended = pod["metadata"], (main_state(pod).get("terminated") or {}).get("finishedAt")
    due, when = timestamps.seconds_or_none(metadata["deletionTimestamp"]), timestamps.seconds_or_none(ended)
    if due is None or when is None:
        return False
    return when >= due - float(metadata.get("deletionGracePeriodSeconds") or 0)


def _is_blamed(status: Mapping[str, Any], terminated: Mapping[str, Any]) -> bool:
    """Return whether the pod failed as a whole: its node or another actor ended it before its main container had ended.

    Times are in whole seconds: an end within the same second counts as requested.
    """
    targets = (condition for condition in status.get("conditions") or () if condition["type"] == "DisruptionTarget")
    target = next((condition for condition in targets if condition["status"] == "True"), None)
    if target is None:
        return bool(status.get("reason"))
    since = timestamps.seconds_or_none(target.get("lastTransitionTime"))
    ended = timestamps.seconds_or_none(terminated.get("finishedAt"))
    return since is None or ended is None or ended >= since


def _is_restarted(spec: Mapping[str, Any], code: int) -> bool:
    """Return whether the node restarts the main container after an exit with this code."""
    main = containers.main(spec)
    if any(_applies(rule.get("exitCodes") or {}, code) for rule in main.get("restartPolicyRules") or ()):
        return True
    policy = main.get("restartPolicy") or spec.get("restartPolicy") or "Always"
    return bool(policy == "Always" or (policy == "OnFailure" and code))


def _applies(codes: Mapping[str, Any], code: int) -> bool:
    return (code in (codes.get("values") or ())) == (codes.get("operator") == "In")
