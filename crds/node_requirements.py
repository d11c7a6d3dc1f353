"""On which nodes a pod may run, by its own spec: spec.nodeName, nodeSelector, the required node affinity, tolerations.

One rule: pure, and a requirement that cannot be read keeps a pod from no node. Only the embedded cluster refuses such
requirements (`embedded.affinity`); the scheduler of a real cluster judges them itself. A requirement that is too large
is not read either: it is compared with each node, in a thread that all tenants share.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from crds.resources.amounts import JOBS, NOTHING, Amounts

MOST_PARTS = 32
"""The most tolerations that are read, and the most terms and expressions of a node affinity together. With 1,000 nodes,
15,000 terms took half a minute."""
LONGEST = 8 * 1024
"""The most bytes that are read of one requirement, as JSON."""
MOST_DIGITS = 19
"""The most digits of a number with which a label is compared: schedulers read 64 bits."""
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
KEEPS_PODS_AWAY = frozenset({"NoSchedule", "NoExecute"})
"""The effects of taints that keep away each pod that does not tolerate them."""
OF_CONDITIONS = "node.kubernetes.io/"
"""The prefix of the taints that repeat the conditions of a node. They may be behind these, so they are not read: a node
without a controller keeps the one with which it was created."""


@dataclass(frozen=True, slots=True)
class Taint:
    """One taint of a node."""

    key: str
    value: str = ""
    effect: str = ""


def read_taints(spec: Mapping[str, Any]) -> tuple[Taint, ...]:
    """Return the taints in the spec of a node. A taint without a key keeps no pod away, so it is left out."""
    found = spec.get("taints")
    listed = [taint for taint in found if isinstance(taint, dict)] if isinstance(found, list) else []
    taints = (Taint(*(_text(taint.get(name)) for name in ("key", "value", "effect"))) for taint in listed)
    return tuple(taint for taint in taints if taint.key)


def binding_taints(taints: Iterable[Taint]) -> list[Taint]:
    """Return those of a node's taints that keep away pods which do not tolerate them."""
    return [taint for taint in taints if taint.effect in KEEPS_PODS_AWAY and not taint.key.startswith(OF_CONDITIONS)]


def tolerates_all(spec: Mapping[str, Any], taints: Iterable[Taint]) -> bool:
    """Return whether a pod with this spec may be placed on a node with these taints."""
    listed = spec.get("tolerations")
    tolerations = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else ()
    return all(any(_tolerates(toleration, taint) for toleration in tolerations) for taint in binding_taints(taints))


def _tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    """Return whether a toleration concerns a taint. One with an unknown operator tolerates nothing."""
    if toleration.get("effect") not in (None, "", taint.effect):
        return False
    key, operator = toleration.get("key") or "", toleration.get("operator") or "Equal"
    if operator == "Exists":
        return key in ("", taint.key)
    return bool(operator == "Equal" and key == taint.key and (toleration.get("value") or "") == taint.value)


def place_condition(spec: Mapping[str, Any], avoided: Sequence[str] = ()) -> str:
    """Return where a pod with this spec may run, as a text that is equal for equal requirements; empty for a pod that
    requires nothing of its node and tolerates nothing.

    `avoided` are the nodes that the pod leaves to others, as long as there are any. A taint with the name of a resource
    that the pod requests counts as tolerated: clusters with the admission plugin ExtendedResourceToleration add such
    tolerations when the pod is made, and taint their nodes with devices so.
    """
    devices = sorted(_devices(spec))
    implied = [{"key": name, "operator": "Exists", "effect": "NoSchedule"} for name in devices]
    affinity = spec.get("affinity")
    node_affinity = affinity.get("nodeAffinity") if isinstance(affinity, dict) else None
    required = node_affinity.get(REQUIRED) if isinstance(node_affinity, dict) else None
    fields = {
        "nodeName": spec.get("nodeName"),
        "nodeSelector": spec.get("nodeSelector"),
        "required": required,
    }
    found = {name: value for name, value in fields.items() if value and _is_small(value)}
    if tolerations := [*_tolerations(spec), *implied]:
        found["tolerations"] = tolerations
    if avoided:
        found["avoided"] = sorted(avoided)
    return orjson.dumps(found, option=orjson.OPT_SORT_KEYS).decode() if found else ""


def in_domain(place: str, domain: str) -> str:
    """Return the text of `place_condition` for pods that run in a domain alone: on nodes with a label and a value, as
    LABEL=VALUE; empty: anywhere."""
    if not domain:
        return place
    return orjson.dumps({**PlaceCondition.parse(place).fields, "domain": domain}, option=orjson.OPT_SORT_KEYS).decode()


def is_inside(domain: str, labels: Mapping[str, str]) -> bool:
    """Return whether a node with these labels is in a domain, as LABEL=VALUE; every node is if there is no domain."""
    label, _, value = domain.partition("=")
    return not domain or labels.get(label) == value


def _tolerations(spec: Mapping[str, Any]) -> list[Any]:
    """Return the tolerations of a pod; one of all taints if there are too many of them."""
    listed = spec.get("tolerations")
    found = listed if isinstance(listed, list) else []
    return found if _is_small(found) else [{"operator": "Exists"}]


def _is_small(requirement: Any) -> bool:
    """Return whether a requirement is made of JSON values, and few enough of them to be compared with each node."""
    try:
        text = orjson.dumps(requirement)
    except orjson.JSONEncodeError:
        return False
    return len(text) <= LONGEST and text.count(b"{") <= MOST_PARTS


def _devices(spec: Mapping[str, Any]) -> set[str]:
    """Return the names of the extended resources that the containers of a pod request."""
    found: set[str] = set()
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        for requested in (container.get("resources") or {}).values():
            if isinstance(requested, dict):
                found.update(name for name in requested if "/" in name)
    return found


@dataclass(frozen=True, slots=True)
class PlaceCondition:
    """Where a pod may run, as `place_condition` wrote it down."""

    fields: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str) -> "PlaceCondition":
        """Return the condition in a text of `place_condition`."""
        return cls(orjson.loads(text) if text else {})

    @property
    def avoided(self) -> Sequence[str]:
        """The nodes that the pod leaves to others, as long as there are any."""
        return self.fields.get("avoided") or ()

    def allows(self, name: str, labels: Mapping[str, str], taints: Iterable[Taint]) -> bool:
        """Return whether the pod may run on a node with this name, these labels and taints."""
        if self.fields.get("nodeName", name) != name:
            return False
        if not is_inside(self.fields.get("domain", ""), labels):
            return False
        selector = self.fields.get("nodeSelector")
        if isinstance(selector, dict) and any(labels.get(label) != value for label, value in selector.items()):
            return False
        return tolerates_all(self.fields, taints) and meets_affinity(self.fields.get("required"), name, labels)


def meets_affinity(selector: Any, name: str, labels: Mapping[str, str]) -> bool:
    """Return whether a node meets a required node affinity. One that cannot be read is met.

    The terms are alternatives. All expressions of a term must be true, and an empty term is never true.
    """
    terms = selector.get("nodeSelectorTerms") if isinstance(selector, dict) else None
    if not isinstance(terms, list) or not all(map(is_readable, terms)):
        return True
    return any(_matches(term, name, labels) for term in terms)


def is_readable(term: Any) -> bool:
    """Return whether a term of a node selector has only fields and operators that this module knows."""
    if not isinstance(term, dict) or not term.keys() <= {"matchExpressions", "matchFields"}:
        return False
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not isinstance(expressions, list) or not isinstance(fields, list):
        return False
    if not all(map(_is_known, (*expressions, *fields))):
        return False
    return all(field["key"] == "metadata.name" for field in fields)


def _is_known(expression: Any) -> bool:
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
    value, values = labels.get(expression["key"]), expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case operator:
            return _compares(operator, value, values)


def _compares(operator: str, value: str | None, values: Sequence[Any]) -> bool:
    """Return whether a label's number is greater (Gt) or less (Lt) than the only value of an expression."""
    try:
        numbers = value or "", str(values[0])
        left, right = (int(number) if len(number) <= MOST_DIGITS + 1 else None for number in numbers)
    except (ValueError, IndexError):
        return False
    if left is None or right is None:
        return False
    return left > right if operator == "Gt" else left < right


_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


class OfferingNode(Protocol):
    """A node with what it offers."""

    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def taints(self) -> tuple[Taint, ...]: ...
    @property
    def allocatable(self) -> Amounts:
        """What pods may request from the node in total, including what is in use; empty if it is not known."""


def could_hold(nodes: Sequence[OfferingNode], pods: Iterable[tuple[Amounts, str]], charge: Amounts) -> bool:
    """Return whether nodes could hold pods, which have this charge together, if they were empty. Of each kind of pods,
    what one pod asks for and its place condition are given.

    By the answer, the pods of a job leave a cordoned node or stay there: for the worker that moves them, and for the
    leader that counts their room. Each pod needs a node on which it may run. A node that does not report its resources
    could hold anything.
    """
    kinds = [(demand, PlaceCondition.parse(where)) for demand, where in pods]
    homeless, rest = set(range(len(kinds))), {**charge, JOBS: 0}
    for node in nodes:
        welcome = {at for at, (_, place) in enumerate(kinds) if place.allows(node.name, node.labels, node.taints)}
        offered = node.allocatable
        homeless -= {at for at in welcome if not offered or _covers(offered, kinds[at][0])}
        if welcome:
            rest = {name: amount - offered.get(name, 0) for name, amount in rest.items()} if offered else {}
        if not homeless and _covers(NOTHING, rest):
            return True  # with most nodes, few of them are looked at
    return not homeless and _covers(NOTHING, rest)


def _covers(room: Amounts, requests: Amounts) -> bool:
    """Return whether room has at least what is asked for of each resource."""
    return all(room.get(name, 0) >= amount for name, amount in requests.items())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
