"""Which nodes wait long before they start the containers of pods again that OpenKruise restarts in place.

One rule: pure. The words of a pod's status decide, because no account of torchq may read the settings of a kubelet.

A kubelet waits 10, 20, 40 .. 300 s before it starts a container once more (CrashLoopBackOff), whatever has ended it.
Only pods that OpenKruise restarts have the restartPolicy OnFailure.
"""

import re

from kube.api import Manifest

LONGEST = 1.0
"""The longest wait in seconds that is not worth a word: the shortest that a kubelet can be given."""
_WAIT = re.compile(r"back-off (?:(\d+)h)?(?:(\d+)m)?(?:([\d.]+)s)? restarting")


def slow_node(pod: Manifest) -> str:
    """Return the node of a pod, if it waits for longer than LONGEST before it starts a container; else an empty
    string."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    if spec.get("restartPolicy") != "OnFailure":
        return ""
    states = (container.get("state") or {} for container in status.get("containerStatuses") or ())
    messages = (str((state.get("waiting") or {}).get("message") or "") for state in states)
    is_slow = any(_seconds(message) > LONGEST for message in messages)
    return str(spec.get("nodeName") or "") if is_slow else ""


def _seconds(message: str) -> float:
    """Return the back-off that a message of a kubelet has; 0 if it has none."""
    found = _WAIT.search(message)
    hours, minutes, seconds = (float(part or 0) for part in found.groups()) if found else (0.0, 0.0, 0.0)
    return hours * 3600 + minutes * 60 + seconds
