"""What is free on nodes, for answers and metrics: as the leader counts it, or as a coordinator that does not lead sees
it from its own caches."""

from collections.abc import Callable, Iterator

from coordinator.cache.node_changes import foreign_on
from coordinator.cache.node_views import NodeFree
from coordinator.cache.watches import Watches
from coordinator.leader.coordinator import Coordinator
from coordinator.query import pool_nodes
from coordinator.query.questions import Document
from coordinator.settings import parse_pool
from crds.resources.amounts import NOTHING, Amounts, increase
from queues.placement.places import Places


def document(coordinator: Coordinator, places: Callable[[], Places | None]) -> Document:
    """Return the document of the pool. `places` returns the places of jobs on nodes as a coordinator that does not lead
    sees them, and may raise QueueError."""
    setting = parse_pool(coordinator.settings.pool)
    if setting != "nodes":
        source: pool_nodes.Source = "leader" if coordinator.leadership.leading else "replica"
        return pool_nodes.document("none" if setting is None else "numbers", (), source)
    of_leader = coordinator.node_places.copy()
    found = of_leader or places()
    nodes = () if found is None else _nodes(coordinator.watches, found)
    return pool_nodes.document("nodes", nodes, "replica" if of_leader is None else "leader")


def fragments(coordinator: Coordinator) -> Amounts:
    """Return what is free in fragments, as the leader counts it; nothing in a process that does not know it."""
    places = coordinator.node_places.copy()
    return NOTHING if places is None else pool_nodes.fragments(_nodes(coordinator.watches, places))


def _nodes(watches: Watches, places: Places) -> Iterator[NodeFree]:
    for node in watches.nodes.values() if watches.nodes else ():
        foreign: dict[str, int] = {}
        for pod in watches.pods.indexed(foreign_on(node.name)):
            if pod.occupies:
                increase(foreign, pod.demand)
        yield NodeFree(node, places.room.free(places.room.index(node.name)), foreign)
