"""The check whether the pods of a job could find nodes if all present nodes were ready and empty.

One rule: pure, and the assignment is the one by which jobs are admitted (`queues.placement.assignment`). Nodes are not
named: who submits jobs may not always list nodes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from coordinator.cache import gang_shapes
from coordinator.cache.node_views import NodeView
from crds.node_requirements import KEEPS_PODS_AWAY, PlaceCondition, Taint, is_inside, meets_affinity, tolerates_all
from crds.resources import amounts, quantities
from crds.resources.amounts import NOTHING, OTHERS, PODS, Amounts
from crds.torchjob.demand import FirstPods
from queues.picking import node_words
from queues.placement import assignment, domains
from queues.placement.gangs import EVERY, Gang, Members, NodeSet
from queues.placement.node_room import Domains, NodeRoom, set_of

MOST_TAINTS = 3
"""The most taints that are named."""


class NodeProblem(NamedTuple):
    """One reason why pods of a job find no nodes."""

    task: str
    """The task with the pods; empty if it is about all of them together."""
    text: str
    resource: str = ""
    """The resource of which the largest node has too little; empty if it is about more than one resource."""
    is_offered: bool = False
    """Whether some node has that resource, so that the pod asks for too much of it."""
    about_place: bool = False
    """Whether no node is one on which the pod may run."""


def too_large(pods: Mapping[str, Amounts], nodes: Sequence[NodeView]) -> Iterator[NodeProblem]:
    """Yield the problems of pods, by task, that would fit no node."""
    for task, pod in pods.items():
        yield from _too_large(task, pod, nodes, "no node")


def _too_large(task: str, demand: Amounts, nodes: Sequence[NodeView], none: str) -> Iterator[NodeProblem]:
    if any(amounts.fits(demand, NOTHING, {**node.allocatable, OTHERS: 0}) for node in nodes):
        return
    over = False
    for name, amount in sorted(demand.items()):
        most = max((node.allocatable.get(name, 0) for node in nodes), default=0)
        if amount > most:
            over = True
            asked, limit = (quantities.format_amount(name, number) for number in (amount, most))
            lack = f"and {none} has more than {limit}" if most else f"which {none} has"
            yield NodeProblem(task, f"a pod asks for {asked} {name}, {lack}", name, most > 0)
    if not over:
        yield NodeProblem(task, f"a pod asks for {_words(demand.items())}, which {none} has together")


def misplaced(starts: Sequence[FirstPods], nodes: Sequence[NodeView]) -> Iterator[NodeProblem]:
    """Yield the problems of pods whose place conditions leave no node, or none that is large enough."""
    for each in starts:
        condition = PlaceCondition.parse(each.place)
        allowed, lack = _allowed(condition.fields, nodes)
        if lack:
            yield NodeProblem(each.task_type, lack, about_place=True)
        elif len(allowed) < len(nodes):
            yield from _too_large(each.task_type, dict(each.share), allowed, "no node where it may run")


def split(starts: Sequence[FirstPods], nodes: Sequence[NodeView]) -> NodeProblem | None:
    """Return the problem of pods that find nodes alone, but not together; None if they do."""
    room = _empty_room(nodes)
    members = _members(starts)
    if not members or assignment.fits(room, members):
        return None
    pods = " and ".join(
        f"{count} {'pod' if count == 1 else 'pods'} of {_words(shape.demand)}" for shape, count in members
    )
    placed = assignment.count_placed(room, members)
    return NodeProblem("", f"{pods} start together, and all nodes, if they were empty, have room for {placed} of them")


def undivided(stages: Iterable[Sequence[FirstPods]], nodes: Sequence[NodeView], label: str) -> str:
    """Return why no domain of a label could hold each stage of a job; empty if one could."""
    room = _empty_room(nodes)
    gangs = [Gang(members, required=label) for stage in stages if (members := _members(stage))]
    for gang in gangs:
        if domains.choose(room, room, gang, gang.members) is None:
            found = domains.count_placed(room, label, gang.members, EVERY)
            words = node_words.shared(gang.members, label, found, len(room.domains(label)))
            return f"{words} if all nodes are empty" if found else words
    first, later = gangs[:1], tuple(gang.members for gang in gangs[1:])
    whole = (replace(gang, later=later) for gang in first)
    if all(domains.choose(room, room, gang, gang.members) is not None for gang in whole):
        return ""
    return f"the stages of the job must share one {label}, and no value of it has room for each of them"


def _members(starts: Sequence[FirstPods]) -> tuple[Members, ...]:
    """Return the pods that start together and ask for something, by their shapes. Anybody may ask about any numbers."""
    asking = (
        each._replace(share=tuple(item for item in each.share if item[1] > 0)) for each in starts if each.pods > 0
    )
    return gang_shapes.members(each for each in asking if each.share)


def _empty_room(nodes: Sequence[NodeView]) -> NodeRoom:
    def allowed(where: str) -> NodeSet:
        condition, found = PlaceCondition.parse(where), 0
        for node in nodes:
            if condition.allows(node.name, node.labels, node.taints):
                found |= 1 << room.index(node.name)
        return found

    def domains_of(label: str) -> Domains:
        found: dict[str, list[int]] = {}
        for node in nodes:
            if value := node.labels.get(label):
                found.setdefault(value, []).append(room.index(node.name))
        return {value: set_of(indexes) for value, indexes in found.items()}

    room = NodeRoom(allowed, domains_of)
    for node in nodes:
        room.set_capacity(room.index(node.name), node.allocatable)
    return room


def _allowed(fields: Mapping[str, Any], nodes: Sequence[NodeView]) -> tuple[Sequence[NodeView], str]:
    """Return the nodes on which a pod may run, and if there are none, what they lack."""
    asked, required, domain = fields.get("nodeSelector"), fields.get("required"), fields.get("domain", "")
    selector = asked if isinstance(asked, dict) else {}  # the API server refuses any other
    tests: tuple[tuple[Callable[[NodeView], bool], Callable[[Sequence[NodeView]], str]], ...] = (
        (
            lambda node: is_inside(domain, node.labels),
            lambda _: f"no node has the label {domain}, and all pods of the job must run on nodes with it",
        ),
        (lambda node: fields.get("nodeName", node.name) == node.name, lambda _: "no node has the name in its nodeName"),
        (
            lambda node: all(node.labels.get(label) == value for label, value in selector.items()),
            lambda left: f"{_missing_labels(selector, left)} that its nodeSelector asks for",
        ),
        (
            lambda node: meets_affinity(required, node.name, node.labels),
            lambda _: "no node meets its required node affinity",
        ),
        (lambda node: tolerates_all(fields, node.taints), lambda left: _taints(fields, left)),
    )
    left = nodes
    for test, words in tests:
        passed = [node for node in left if test(node)]
        if not passed:
            return (), words(left)
        left = passed
    return left, ""


def _missing_labels(selector: Mapping[str, Any], nodes: Sequence[NodeView]) -> str:
    labels = sorted(selector.items())
    missing = [label for label in labels if all(node.labels.get(label[0]) != label[1] for node in nodes)]
    words = ", ".join(f"{label}={value}" for label, value in missing or labels)
    return f"no node has the label{'s' if len(missing or labels) > 1 else ''} {words}" + (
        "" if missing else " together"
    )


def _taints(fields: Mapping[str, Any], nodes: Sequence[NodeView]) -> str:
    def is_borne(taint: Taint) -> bool:
        return taint.effect not in KEEPS_PODS_AWAY or tolerates_all(fields, (taint,))

    found = dict.fromkeys(taint for node in nodes for taint in node.taints if not is_borne(taint))
    shown = [f"{taint.key}={taint.value}:{taint.effect}".replace("=:", ":") for taint in found]
    more = " and others" if len(shown) > MOST_TAINTS else ""
    return f"it does not tolerate the taints of the nodes where it may run ({', '.join(shown[:MOST_TAINTS])}{more})"


def _words(demand: Any) -> str:
    """Format what a pod asks for, the devices first."""
    named = sorted(
        ((name, amount) for name, amount in demand if name != PODS), key=lambda item: ("/" not in item[0], item)
    )
    return ", ".join(f"{quantities.format_amount(name, amount)} {name}" for name, amount in named)
