"""What the queues compete for.

One rule: pure. The pool is what our jobs may occupy together; a resource that no node offers has room for nobody.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from typing import Literal

from coordinator.views import NodeView, PodView
from crds import amounts
from crds.amounts import JOBS, Amounts

PoolSetting = Amounts | Literal["nodes"] | None


def capacity(
    setting: PoolSetting, nodes: Iterable[NodeView], pods: Iterable[PodView], demanded: Iterable[str]
) -> Amounts | None:
    """The pool, or None where nothing is scarce (by setting, or because the cluster shows no nodes at all).

    From nodes: what the ready ones offer minus what pods that are not ours occupy. `demanded` are the resource names
    that jobs ask for: one that no node has counts as 0, else such a job would be admitted and never run.
    """
    if setting != "nodes":
        return setting
    nodes = list(nodes)
    if not nodes:
        return None
    offered: Amounts = reduce(amounts.add, (node.allocatable for node in nodes if node.ready), {})
    foreign: Amounts = reduce(amounts.add, (pod.demand for pod in pods if pod.job is None and pod.occupies), {})
    names = {name for node in nodes for name in node.allocatable} | (set(demanded) - {JOBS})
    return {name: max(0, offered.get(name, 0) - foreign.get(name, 0)) for name in names}


def largest(setting: PoolSetting, nodes: Iterable[NodeView], demanded: Iterable[str]) -> Amounts | None:
    """What the pool can ever be, with the nodes there are: all of them ready, and nobody else on them."""
    return capacity(setting, (replace(node, ready=True) for node in nodes), (), demanded)
