"""The node requirements of a pod: spec.nodeSelector and spec.affinity.

One rule: pure, and no requirement is ignored. A pod with a requirement that is not implemented here waits, with that as
the reason.
"""

from collections.abc import Mapping
from typing import Any

from crds import node_requirements
from crds.node_requirements import REQUIRED


def objection(spec: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> str:
    """Return which requirement of a pod a node with this name and these labels does not meet; empty if the node meets
    all requirements.

    A requirement that is not implemented here counts as not met.
    """
    for label, value in (spec.get("nodeSelector") or {}).items():
        if labels.get(label) != value:
            return f"the node does not have the label {label}={value} that spec.nodeSelector asks for"
    for kind, rules in (spec.get("affinity") or {}).items():
        if not isinstance(rules, dict | None):
            return f"spec.affinity.{kind} must be a map"
        required = (rules or {}).get(REQUIRED)
        if required:
            problem = _node_affinity(required, name, labels) if kind == "nodeAffinity" else _not_implemented(kind)
            if problem:
                return problem
    return ""


def _not_implemented(kind: str) -> str:
    return f"spec.affinity.{kind} has a requirement that the embedded scheduler does not support; make it a preference"


def _node_affinity(selector: Any, name: str, labels: Mapping[str, str]) -> str:
    """Return why a node does not match a node selector; empty if the node matches."""
    terms = selector.get("nodeSelectorTerms") if isinstance(selector, dict) else None
    if not isinstance(terms, list) or not all(map(node_requirements.is_readable, terms)):
        return _not_implemented("nodeAffinity")
    if node_requirements.meets_affinity(selector, name, labels):
        return ""
    return f"the node does not meet spec.affinity.nodeAffinity.{REQUIRED}"
