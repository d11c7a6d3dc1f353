"""The nodes on which the pods of a job were placed, as the text that its reservation keeps for the worker.

The text has a group for each kind of alike pods: the number of the kind in the order of the job's members, and its
nodes, each with a number of pods. A growth adds a group.

    0=n01*1 1=n07*4,n12*3 1=n12*1      the first kind: n01; the second: four times n07, four times n12
"""

from collections.abc import Iterable, Mapping, Sequence

from queues.placement.gangs import Placed, Shape

MOST_LENGTH = 2_048
"""The most characters of a text. Nothing is kept of a job with more: a scheduler does without."""


def write(placed: Iterable[Placed], kinds: Sequence[Shape], names: Sequence[str]) -> str:
    """Return the text for pods that were placed, given the shapes of the job's members and the names of nodes."""
    groups: dict[Shape, list[str]] = {}
    for node, shape, count in placed:
        groups.setdefault(shape, []).append(f"{names[node]}*{count}")
    return _bounded(" ".join(f"{kinds.index(shape)}={','.join(nodes)}" for shape, nodes in groups.items()))


def extend(text: str, more: str) -> str:
    """Return a text with that of a growth. Without the places before, those of a growth mean nothing."""
    return _bounded(f"{text} {more}") if text and more else text


def read(text: str) -> Mapping[int, Sequence[str]]:
    """Return the nodes of each kind of pods, one for each pod."""
    found: dict[int, list[str]] = {}
    for group in text.split():
        kind, _, nodes = group.partition("=")
        for node, _, count in (each.partition("*") for each in nodes.split(",")):
            found.setdefault(int(kind), []).extend([node] * int(count))
    return found


def _bounded(text: str) -> str:
    return text if len(text) <= MOST_LENGTH else ""
