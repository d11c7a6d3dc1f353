"""The taints of a node, and whether a pod template tolerates them.

One rule: pure, as in the scheduler of Kubernetes. What cannot be read is left out: a taint without a key keeps no pod
away, and a toleration with an unknown operator tolerates nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

KEEPS_PODS_AWAY = frozenset({"NoSchedule", "NoExecute"})
"""The effects of taints that keep away each pod that does not tolerate them."""

OF_CONDITIONS = "node.kubernetes.io/"
"""The prefix of the taints that repeat the conditions of a node. They may be behind these, so they are not read here: a
node without a controller keeps the one with which it was created."""


@dataclass(frozen=True, slots=True)
class Taint:
    """One taint."""

    key: str
    value: str = ""
    effect: str = ""


def read(spec: Mapping[str, Any]) -> tuple[Taint, ...]:
    """Return the taints in the spec of a node."""
    found = spec.get("taints")
    listed = [taint for taint in found if isinstance(taint, dict)] if isinstance(found, list) else []
    taints = (Taint(*(_text(taint.get(name)) for name in ("key", "value", "effect"))) for taint in listed)
    return tuple(taint for taint in taints if taint.key)


def tolerates_all(spec: Mapping[str, Any], taints: Iterable[Taint]) -> bool:
    """Return whether a pod with this spec may be placed on a node with these taints."""
    tolerations = [entry for entry in spec.get("tolerations") or () if isinstance(entry, dict)]
    binding = (taint for taint in taints if taint.effect in KEEPS_PODS_AWAY and not taint.key.startswith(OF_CONDITIONS))
    return all(any(_tolerates(toleration, taint) for toleration in tolerations) for taint in binding)


def _tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    if toleration.get("effect") not in (None, "", taint.effect):
        return False
    key, operator = toleration.get("key") or "", toleration.get("operator") or "Equal"
    if operator == "Exists":
        return key in ("", taint.key)
    return bool(operator == "Equal" and key == taint.key and (toleration.get("value") or "") == taint.value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
