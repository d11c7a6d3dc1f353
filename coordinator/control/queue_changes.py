"""The changes that a person may ask for of a queue.

One rule: pure. Each change is one patch of the TenantQueue, safe to repeat.
"""

from coordinator.control.change_author import Change
from kube.api import Manifest


def set_weight(name: str, weight: int) -> Change:
    """Change the weight of a queue."""
    return edit(name, {"weight": weight}, "WeightChanged", f"weight {weight}")


def pause(name: str, *, drain: bool = False) -> Change:
    """Stop admitting jobs from a queue; with `drain`, suspend the admitted jobs, too."""
    policy, text = ("HoldAndDrain", "on hold and draining") if drain else ("Hold", "on hold")
    return Change({"spec": {"stopPolicy": policy}}, "QueuePaused", f"queue {name} {text}")


def resume(name: str) -> Change:
    """Admit jobs from a paused queue again."""
    return Change({"spec": {"stopPolicy": "None"}}, "QueueResumed", f"queue {name} open")


def edit(name: str, spec: Manifest, code: str, text: str) -> Change:
    """Change settings of a queue; `text` names the new values."""
    return Change({"spec": spec}, code, f"queue {name}: {text}")
