"""The node requirements of a pod: spec.nodeSelector and spec.affinity.

One rule: pure, and no requirement is ignored. A pod with a requirement that is not implemented here waits, with that as
the reason.
"""

from collections.abc import Mapping, Sequence
from typing import Any

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


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
        required = (rules or {}).get(_REQUIRED)
        if required:
            problem = _node_affinity(required, name, labels) if kind == "nodeAffinity" else _not_implemented(kind)
            if problem:
                return problem
    return ""


def _not_implemented(kind: str) -> str:
    return f"spec.affinity.{kind} has a requirement that the embedded scheduler does not support; make it a preference"


def _node_affinity(selector: Any, name: str, labels: Mapping[str, str]) -> str:
    """Return why a node does not match a node selector; empty if the node matches.

    The terms are alternatives. All expressions of a term must be true, and an empty term is never true.
    """
    terms = selector.get("nodeSelectorTerms") if isinstance(selector, dict) else None
    if not isinstance(terms, list) or not all(map(_readable, terms)):
        return _not_implemented("nodeAffinity")
    if any(_matches(term, name, labels) for term in terms):
        return ""
    return f"the node does not meet spec.affinity.nodeAffinity.{_REQUIRED}"


def _readable(term: Any) -> bool:
    if not isinstance(term, dict) or not term.keys() <= {"matchExpressions", "matchFields"}:
        return False
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not isinstance(expressions, list) or not isinstance(fields, list):
        return False
    if not all(map(_is_implemented, (*expressions, *fields))):
        return False
    return all(field["key"] == "metadata.name" for field in fields)


def _is_implemented(expression: Any) -> bool:
    if not isinstance(expression, dict) or not isinstance(expression.get("key"), str):
        return False
    return expression.get("operator") in _OPERATORS and isinstance(expression.get("values"), list | None)


def _matches(term: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    expressions: Sequence[Mapping[str, Any]] = term.get("matchExpressions") or ()
    fields: Sequence[Mapping[str, Any]] = term.get("matchFields") or ()
    results = [_is_true(expression, labels) for expression in expressions]
    results += [_is_true(field, {"metadata.name": name}) for field in fields]
    return bool(results) and all(results)


def _is_true(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value = labels.get(expression["key"])
    match expression["operator"]:
        case "In":
            return value is not None and value in (expression.get("values") or ())
        case "NotIn":
            return value not in (expression.get("values") or ())
        case "Exists":
            return value is not None
        case _:
            return value is None
