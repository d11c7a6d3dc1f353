"""The start gate of a pod (`reconcilers.pods.start_gate`) as its node reports it.

One rule: pure, over a pod as the API server shows it. A gate that has opened is as if there were none.
"""

import math
from collections.abc import Mapping
from typing import Any

from crds import labels, timestamps
from reconcilers.views import containers


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
