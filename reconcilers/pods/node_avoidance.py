"""Keep a pod away from nodes.

One rule: pure, over a fresh copy of an opaque pod spec; what the template says about nodes itself holds as well. Terms
of a required affinity are alternatives, so that each of them gets what must hold in any case.
"""

from collections.abc import Iterable
from typing import Any

HOSTNAME = "kubernetes.io/hostname"
WEIGHT = 100


def avoid(spec: dict[str, Any], nodes: Iterable[str], *, strictly: bool) -> None:
    """Have the pod keep away from nodes: strictly, or as long as there are others."""
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
        node[field] = {"nodeSelectorTerms": kept or terms}  # an empty term matches no node, and is not to match one now
    else:
        field = "preferredDuringSchedulingIgnoredDuringExecution"
        preferred = {"weight": WEIGHT, "preference": {"matchExpressions": [elsewhere]}}
        node[field] = [*(node.get(field) or ()), preferred]
    spec["affinity"] = affinity | {"nodeAffinity": node}


def _with(term: dict[str, Any], expression: dict[str, Any]) -> dict[str, Any]:
    return term | {"matchExpressions": [*(term.get("matchExpressions") or ()), expression]}
