"""What a pod wants of its node: spec.nodeSelector and spec.affinity.

One rule: pure, and nothing that is required is passed over: what is not evaluated here keeps the pod waiting, with the
reason.
"""

from collections.abc import Mapping, Sequence
from typing import Any

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def objection(spec: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> str:
    """A wish of a pod that the node of that name and those labels does not meet, or that is not known here."""
    for label, value in (spec.get("nodeSelector") or {}).items():
        if labels.get(label) != value:
            return f"the node does not have the label {label}={value} that spec.nodeSelector asks for"
    for kind, rules in (spec.get("affinity") or {}).items():
        if not isinstance(rules, dict | None):
            return f"spec.affinity.{kind} must be a map"
        required = (rules or {}).get(_REQUIRED)
        if required:
            problem = _node_affinity(required, name, labels) if kind == "nodeAffinity" else _unknown(kind)
            if problem:
                return problem
    return ""


def _unknown(what: str) -> str:
    return f"spec.affinity.{what} requires something, which this scheduler does not know; prefer it instead"


def _node_affinity(selector: Any, name: str, labels: Mapping[str, str]) -> str:
    """Terms are alternatives, what is in a term must all be true, and an empty term is never true."""
    terms = selector.get("nodeSelectorTerms") if isinstance(selector, dict) else None
    if not isinstance(terms, list) or not all(map(_readable, terms)):
        return _unknown("nodeAffinity")
    if any(_met(term, name, labels) for term in terms):
        return ""
    return f"the node does not meet spec.affinity.nodeAffinity.{_REQUIRED}"


def _readable(term: Any) -> bool:
    if not isinstance(term, dict) or not term.keys() <= {"matchExpressions", "matchFields"}:
        return False
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not isinstance(expressions, list) or not isinstance(fields, list):
        return False
    return all(map(_known, (*expressions, *fields))) and all(each["key"] == "metadata.name" for each in fields)


def _known(expression: Any) -> bool:
    if not isinstance(expression, dict) or not isinstance(expression.get("key"), str):
        return False
    return expression.get("operator") in _OPERATORS and isinstance(expression.get("values"), list | None)


def _met(term: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    expressions: Sequence[Mapping[str, Any]] = term.get("matchExpressions") or ()
    fields: Sequence[Mapping[str, Any]] = term.get("matchFields") or ()
    true = [_holds(each, labels) for each in expressions] + [_holds(each, {"metadata.name": name}) for each in fields]
    return bool(true) and all(true)


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
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
