"""Keep a pod away from nodes.

One rule: pure, over a fresh copy of an opaque pod spec; the template's own node constraints stay in force. The terms of
a required affinity are alternatives, so each of them gets the constraint.
"""

from collections.abc import Iterable
from typing import Any

HOSTNAME = "kubernetes.io/hostname"
WEIGHT = 100


def avoid(spec: dict[str, Any], nodes: Iterable[str], *, strictly: bool) -> None:
    """Make a pod avoid nodes: as a requirement with `strictly`, else as a preference."""
    names = sorted(nodes)
    if not names:
        return
    elsewhere = {"key": HOSTNAME, "operator": "NotIn", "values": names}
    affinity = dict(spec.get("affinity") or {})
    node = dict(affinity.get("nodeAffinity") or {})
    if strictly:
        field = "requiredDuringSchedulingIgnoredDuringExecution"
        terms = (node.get(field) or {}).get("nodeSelectorTerms")
        kept = [_with(term, elsewhere) for term in terms if term] if terms else [_with({}, elsewhere)]
        node[field] = {
            "nodeSelectorTerms": kept or terms
        }  # an empty term matches no node, and must not begin to match some
    else:
        field = "preferredDuringSchedulingIgnoredDuringExecution"
        preferred = {"weight": WEIGHT, "preference": {"matchExpressions": [elsewhere]}}
        node[field] = [*(node.get(field) or ()), preferred]
    spec["affinity"] = affinity | {"nodeAffinity": node}


def _with(term: dict[str, Any], expression: dict[str, Any]) -> dict[str, Any]:
    return term | {"matchExpressions": [*(term.get("matchExpressions") or ()), expression]}
