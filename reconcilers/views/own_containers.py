"""The containers that torchq adds to a pod as its node reports them: the start gate and the restart agent.

One rule: pure, over a pod as the API server shows it. A gate that has opened is as if there were none. An agent that
runs has nothing to report, whatever it did before. `reconcilers.pods` has `start_gate` and `restart_agent`.
"""

import math
import re
import sys
from collections.abc import Mapping
from typing import Any

from crds import excerpts, labels, timestamps
from reconcilers.views import containers

LONGEST = 300
"""The largest number of characters of a message, which the pods of a job share."""
LACKS_SH, LACKS_SLEEP = "the image has no sh", "the image has no sleep"
_NOT_STARTED = frozenset({"StartError", "ContainerCannotRun"})
_NO_SH = re.compile(r"\bsh\b.*(executable file|no such file or directory)", re.IGNORECASE)
_NO_PROGRAM = 127
"""The exit code of the agent if its shell does not find `sleep`; container runtimes have it, too."""


def closed_since(metadata: Mapping[str, Any], spec: Mapping[str, Any], status: Mapping[str, Any]) -> float | None:
    """Return when the pod reached its closed gate, in seconds since the epoch; infinity if it has not reached it, and
    None if no gate is closed."""
    has_gate = any(container["name"] == containers.GATE for container in spec.get("initContainers") or ())
    if not has_gate or (metadata.get("annotations") or {}).get(labels.START):
        return None
    statuses = status.get("initContainerStatuses") or ()
    states = (entry.get("state") or {} for entry in statuses if entry["name"] == containers.GATE)
    running: Mapping[str, Any] = next(states, {}).get("running") or {}
    reached = timestamps.seconds_or_none(running.get("startedAt"))
    return math.inf if reached is None else reached


def find_agent_failure(status: Mapping[str, Any]) -> str:
    """Return why a pod's agent cannot run; empty if nothing speaks against it."""
    for entry in status.get("initContainerStatuses") or ():
        state, before = entry.get("state") or {}, entry.get("lastState") or {}
        if entry.get("name") == containers.RESTART_AGENT and "running" not in state:
            return _explain(state.get("terminated") or before.get("terminated") or {})
    return ""


def _explain(ended: Mapping[str, Any]) -> str:
    said, is_not_started = excerpts.one_line(ended.get("message") or ""), ended.get("reason") in _NOT_STARTED
    if not is_not_started:
        return LACKS_SLEEP if ended.get("exitCode") == _NO_PROGRAM else ""
    return LACKS_SH if _NO_SH.search(said) else sys.intern(excerpts.excerpt(said or ended["reason"], LONGEST))
