"""What an admission webhook has made of a new pod that torchq cannot work with.

One rule: pure. What a webhook adds to a pod, such as containers, labels or requests, is its business.
"""

from crds.labels import GROUP
from kube.api import Manifest
from reconcilers.values import EmitEvent

CHANGED = "PodChanged"
REMEDY = "leave pods of torchq out of that webhook, or let it add to them only"


def event(sent: Manifest, made: Manifest) -> EmitEvent | None:
    """Return the event about a pod that the API server has made otherwise than it was asked to; None if it is fine."""
    found = [*_lost_labels(sent, made), *_policy(sent, made)]
    if not found:
        return None
    name = sent["metadata"]["name"]
    return EmitEvent(CHANGED, f"pod {name}: an admission webhook {', and '.join(found)}: {REMEDY}", warning=True)


def _lost_labels(sent: Manifest, made: Manifest) -> list[str]:
    wanted, given = sent["metadata"].get("labels") or {}, made["metadata"].get("labels") or {}
    lost = sorted(name for name, value in wanted.items() if name.startswith(GROUP) and given.get(name) != value)
    return [f"has replaced labels ({', '.join(lost)}), by which torchq finds it"] if lost else []


def _policy(sent: Manifest, made: Manifest) -> list[str]:
    wanted, given = ((each.get("spec") or {}).get("restartPolicy") for each in (sent, made))
    return (
        [f"has changed restartPolicy {wanted} to {given}, which decides who restarts its containers"]
        if wanted != given
        else []
    )
