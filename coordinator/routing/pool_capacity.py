"""The size of the pool, for whose resources the queues compete.

One rule: pure. The pool is the room that all TorchJobs together may occupy. Its size follows from the nodes, not from
the requests of jobs. A resource that no node offers is not named in the pool, so the pool has 0 of it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

from coordinator.cache.node_views import NodeView
from coordinator.cache.views import PodView
from crds.resources import amounts
from crds.resources.amounts import NOTHING, OTHERS, Amounts

PoolSetting = Amounts | Literal["nodes"] | None
NONE_HELD: Mapping[str, Amounts] = MappingProxyType({})
"""Nothing is held on nodes that take no new pods."""


def capacity(
    setting: PoolSetting, nodes: Iterable[NodeView], pods: Iterable[PodView], held: Mapping[str, Amounts] = NONE_HELD
) -> Amounts | None:
    """Return the size of the pool, or None if the setting says that nothing is scarce.

    If the size follows from the nodes, the size is the amount that ready nodes offer, minus the amount that foreign
    pods occupy there, and on other nodes the amount that pods of jobs hold (`held`, by node), which are charged. The
    pool has none of any other resource, because a job that asks for such a resource would be admitted and never run. A
    cluster without nodes has room for no job.
    """
    if setting != "nodes":
        return setting
    nodes = list(nodes)
    room = dict.fromkeys((name for node in nodes for name in node.allocatable), 0)
    free = {node.name: dict(node.allocatable) for node in nodes if node.ready or node.name in held}
    for pod in pods:
        # A pod that names no existing node, or asks for more than the node has, takes nothing of other nodes.
        left = free.get(pod.node, {}) if pod.job is None and pod.occupies else {}
        for name in left.keys() & pod.demand.keys():
            left[name] = max(0, left[name] - pod.demand[name])
    for node in nodes:
        left = free.get(node.name, {})
        own = left if node.ready else held.get(node.name, NOTHING)
        amounts.increase(room, {name: min(amount, own.get(name, 0)) for name, amount in left.items()})
    return {**room, OTHERS: 0}


def largest(setting: PoolSetting, nodes: Iterable[NodeView]) -> Amounts | None:
    """Return the size that the pool would have if all present nodes were ready and free of foreign pods.

    The result is None if the pool is unlimited, or if there is no node yet, since the size of later nodes is not known.
    """
    empty = [replace(node, ready=True) for node in nodes]
    return None if setting == "nodes" and not empty else capacity(setting, empty, ())
