"""What the queues compete for.

One rule: pure. The pool is what our jobs may occupy together. Of a resource that no node offers there is none, and the
pool does not name it: its size follows from the nodes, not from what jobs ask for.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from coordinator.cache.views import NodeView, PodView
from crds.resources import amounts
from crds.resources.amounts import OTHERS, Amounts

PoolSetting = Amounts | Literal["nodes"] | None


def capacity(setting: PoolSetting, nodes: Iterable[NodeView], pods: Iterable[PodView]) -> Amounts | None:
    """The pool, or None where the setting says that nothing is scarce.

    From nodes: what the ready ones offer minus what pods that are not ours occupy there, and nothing of any other
    resource: a job that asks for one would be admitted and never run. A cluster without nodes has room for no job.
    """
    if setting != "nodes":
        return setting
    nodes = list(nodes)
    room = dict.fromkeys((name for node in nodes for name in node.allocatable), 0)
    left = {node.name: dict(node.allocatable) for node in nodes if node.ready}
    for pod in pods:
        if pod.job is None and pod.occupies:
            _take(left.get(pod.node, {}), pod.demand)
    for each in left.values():
        amounts.increase(room, each)
    return {**room, OTHERS: 0}


def _take(room: dict[str, int], demand: Amounts) -> None:
    """Take from the room of one node; a pod whose name for a node is made up, or that asks for more, takes no other."""
    for name in room.keys() & demand.keys():
        room[name] = max(0, room[name] - demand[name])


def largest(setting: PoolSetting, nodes: Iterable[NodeView]) -> Amounts | None:
    """What the pool can ever be, with the nodes there are: all of them ready, and nobody else on them. None if that is
    unlimited, or not known: while a cluster has no node, nothing says what its nodes will offer."""
    empty = [replace(node, ready=True) for node in nodes]
    return None if setting == "nodes" and not empty else capacity(setting, empty, ())
