"""The restart agent of a pod (`reconcilers.pods.restart_agent`) as its node reports it.

One rule: pure, over a pod as the API server shows it. An agent that runs has nothing to report, whatever it did before.
"""

import sys
from collections.abc import Mapping
from typing import Any

from crds import excerpts
from reconcilers.views import containers

LONGEST = 300
"""The largest number of characters of a message, which the pods of a job share."""
_NOT_STARTED = frozenset({"StartError", "ContainerCannotRun"})
_NO_PROGRAM = frozenset({126, 127, 128})
"""The exit codes of shells and container runtimes for a program that is not there."""


def find_failure(status: Mapping[str, Any]) -> str:
    """Return why a pod's agent cannot run, in the words of the container runtime; empty if nothing speaks against
    it. An image without `sh` or `sleep` is the usual cause."""
    for entry in status.get("initContainerStatuses") or ():
        state, before = entry.get("state") or {}, entry.get("lastState") or {}
        if entry.get("name") != containers.RESTART_AGENT or "running" in state:
            continue
        ended: Mapping[str, Any] = state.get("terminated") or before.get("terminated") or {}
        if ended.get("reason") in _NOT_STARTED or ended.get("exitCode") in _NO_PROGRAM:
            said = excerpts.one_line(ended.get("message") or f"exit code {ended.get('exitCode')}")
            return sys.intern(excerpts.excerpt(said, LONGEST))
    return ""
