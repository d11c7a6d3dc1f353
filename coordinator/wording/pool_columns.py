"""The columns of the nodes by shape, over the documents of `coordinator.query.pool_nodes`."""

from collections.abc import Mapping

from coordinator.query.questions import Document
from coordinator.wording.columns import TableColumn
from crds.resources import quantities

CPU, MEMORY = "cpu", "memory"
NOT_LEADERS = "note: not the leader's answer: of jobs whose pods are on no node yet, it may place some on other nodes"


def _words(amounts: Mapping[str, str]) -> str:
    """Format what a node or a pod has for people, the GPUs first, as in 8 gpu, 64 cpu, 512Gi."""
    names = sorted(amounts, key=lambda name: (name == MEMORY, name == CPU, name))
    return ", ".join(f"{amounts[name]}{_unit(name)}" for name in names)


def _unit(resource: str) -> str:
    return "" if resource == MEMORY else f" {resource.rpartition('/')[2]}"


def _largest_pod(nodes: Document) -> str:
    count = nodes["largestPodNodes"]
    return f"{_words(nodes['largestPod'])} ({count} {'node' if count == 1 else 'nodes'})" if count else "-"


def _free(nodes: Document, name: str) -> str:
    return f"{nodes['free'][name]} of {nodes['capacity'][name]}{_unit(name)}"


def _amount(amounts: Mapping[str, str], name: str) -> float:
    return float(quantities.exact(amounts.get(name, "0")))


POOL_COLUMNS = (
    TableColumn(
        "SHAPE", lambda nodes: _words(nodes["shape"]), lambda nodes: _amount(nodes["shape"], nodes["resource"])
    ),
    TableColumn("NODES", lambda nodes: nodes["nodes"]),
    TableColumn("READY", lambda nodes: nodes["ready"]),
    TableColumn(
        "FREE", lambda nodes: _free(nodes, nodes["resource"]), lambda nodes: _amount(nodes["free"], nodes["resource"])
    ),
    TableColumn("LARGEST POD THAT FITS", _largest_pod, lambda nodes: _amount(nodes["largestPod"], nodes["resource"])),
    TableColumn(
        "IN FRAGMENTS",
        lambda nodes: f"{nodes['fragments']}{_unit(nodes['resource'])}",
        lambda nodes: float(quantities.exact(nodes["fragments"])),
    ),
    TableColumn("RESOURCE", lambda nodes: nodes["resource"], wide=True),
    TableColumn("FREE CPU", lambda nodes: _free(nodes, CPU), lambda nodes: _amount(nodes["free"], CPU), wide=True),
    TableColumn(
        "FREE MEMORY", lambda nodes: _free(nodes, MEMORY), lambda nodes: _amount(nodes["free"], MEMORY), wide=True
    ),
)
"""The columns of the nodes by shape (`coordinator.query.pool_nodes`)."""
