"""The nodes on which the pods of a job were placed, as the text that its reservation keeps for the worker.

The text has a group for each kind of alike pods: the number of the kind in the order of the job's members, and its
nodes, each with a number of pods. A growth adds a group. Before them is the domain of a job that requires one.

    0=n01*1 1=n07*4,n12*3 1=n12*1      the first kind: n01; the second: four times n07, four times n12
    in:example.org/rack=r1 0=n01*2     two pods on n01, and all pods of the job in this rack
"""

from collections.abc import Mapping, Sequence

from queues.placement.gangs import Placed, Shape

MOST_LENGTH = 2_048
"""The most characters of a text. Of a job with more, only the domain is kept: a scheduler does without the nodes."""
_DOMAIN = "in:"


def write(placed: Sequence[Placed], kinds: Sequence[Shape], names: Sequence[str], domain: str = "") -> str:
    """Return the text for pods that were placed, given the shapes of the job's members, the names of nodes, and the
    job's domain."""
    if len(placed) == 1 and not domain:
        ((node, shape, count),) = placed
        return write_alike(names[node], count, kinds.index(shape))
    groups: dict[Shape, list[str]] = {}
    for node, shape, count in placed:
        groups.setdefault(shape, []).append(f"{names[node]}*{count}")
    first = f"{_DOMAIN}{domain}" if domain else ""
    text = " ".join(filter(None, (first, *(f"{kinds.index(shape)}={','.join(on)}" for shape, on in groups.items()))))
    return text if len(text) <= MOST_LENGTH else first


def write_alike(node: str, count: int, kind: int = 0) -> str:
    """Return the text for alike pods on one node, given its name."""
    return f"{kind}={node}*{count}"


def domain_of(label: str, value: str) -> str:
    """Return the domain of all nodes with one value of a label, as a text; empty without a value. Neither has the
    character between them."""
    return f"{label}={value}" if value else ""


def domain(text: str) -> str:
    """Return the domain in the text of a reservation; empty if it has none."""
    first, _, _ = text.partition(" ")
    return first.removeprefix(_DOMAIN) if first.startswith(_DOMAIN) else ""


def is_in(text: str, required: str) -> bool:
    """Return whether a reservation has the domain that its job requires, by the label; empty: none is required."""
    return not required or domain(text).partition("=")[0] == required


def extend(text: str, more: str) -> str:
    """Return a text with that of a growth. Without the places before, those of a growth mean nothing."""
    both, first = f"{text} {more}", domain(text)
    if not more or "*" not in text:
        return text
    return both if len(both) <= MOST_LENGTH else f"{_DOMAIN}{first}" if first else ""


def read(text: str) -> Mapping[int, Sequence[str]]:
    """Return the nodes of each kind of pods, one for each pod."""
    found: dict[int, list[str]] = {}
    for group in text.removeprefix(f"{_DOMAIN}{domain(text)}").split():
        kind, _, nodes = group.partition("=")
        for node, _, count in (each.partition("*") for each in nodes.split(",")):
            found.setdefault(int(kind), []).extend([node] * int(count))
    return found
