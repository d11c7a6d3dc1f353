"""What has become of a pod: how its main container ended is how the pod ended, whatever its other containers do.

One rule: pure, over a pod as the API server shows it. Kubernetes takes a pod for running as long as any container of
it runs, and for failed if any has failed: a job that goes by that waits for its log shipper for ever, or dies with it.
"""

from collections.abc import Mapping
from typing import Any

from kube.api import Manifest
from reconcilers.views import containers, timestamps

FINISHED = ("Succeeded", "Failed")


def of(pod: Manifest) -> str:
    """Its phase. Of one that is being deleted it is the node's word; but who ends well because it was told to stop, be
    it by a node that shuts down, has not done what it is for."""
    status: Mapping[str, Any] = pod.get("status") or {}
    phase: str = status.get("phase") or "Pending"
    if "deletionTimestamp" in pod["metadata"]:
        return "Failed" if phase == "Succeeded" and _was_stopped(pod) else phase
    if phase not in ("Running", "Failed"):
        return phase
    terminated: Mapping[str, Any] = main_state(pod).get("terminated") or {}
    code = terminated.get("exitCode")
    if phase == "Failed":
        return "Succeeded" if code == 0 and not _is_blamed(status, terminated) else phase
    if code is None or _comes_back(pod["spec"], code):
        return phase
    return "Failed" if code or _is_blamed(status, terminated) else "Succeeded"


def main_state(pod: Manifest) -> Mapping[str, Any]:
    """The state of its main container; empty if nobody has said it yet."""
    main = containers.main(pod["spec"])["name"]
    found = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((each.get("state") or {} for each in found if each["name"] == main), {})


def _was_stopped(pod: Manifest) -> bool:
    """Whether the main container ended when the pod was asked to go, or later; times are whole seconds."""
    metadata, ended = pod["metadata"], (main_state(pod).get("terminated") or {}).get("finishedAt")
    due, when = timestamps.seconds(metadata["deletionTimestamp"]), timestamps.seconds(ended)
    if due is None or when is None:
        return False
    return when >= due - float(metadata.get("deletionGracePeriodSeconds") or 0)


def _is_blamed(status: Mapping[str, Any], terminated: Mapping[str, Any]) -> bool:
    """Whether the pod failed as a whole: its node, or somebody, has ended it, and not after its main container had
    ended by itself. Times are whole seconds: within one, the container was asked to end."""
    targets = (each for each in status.get("conditions") or () if each["type"] == "DisruptionTarget")
    target = next((each for each in targets if each["status"] == "True"), None)
    if target is None:
        return bool(status.get("reason"))
    since, ended = (
        timestamps.seconds(target.get("lastTransitionTime")),
        timestamps.seconds(terminated.get("finishedAt")),
    )
    return since is None or ended is None or ended >= since


def _comes_back(spec: Mapping[str, Any], code: int) -> bool:
    """Whether the node restarts the main container after such an exit."""
    main = containers.main(spec)
    if any(_applies(rule.get("exitCodes") or {}, code) for rule in main.get("restartPolicyRules") or ()):
        return True
    policy = main.get("restartPolicy") or spec.get("restartPolicy") or "Always"
    return bool(policy == "Always" or (policy == "OnFailure" and code))


def _applies(codes: Mapping[str, Any], code: int) -> bool:
    return (code in (codes.get("values") or ())) == (codes.get("operator") == "In")
