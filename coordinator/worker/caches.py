"""What a worker process sees of the cluster beside the job it looks at: pods, queues, nodes, and others' kinds.

One rule: a cache that is not there, or not yet there, costs a request or a wait, never a wrong pod.
"""

import logging
from collections.abc import Callable
from typing import Any

from coordinator.cache.optional_kinds import Foreign
from coordinator.settings import Settings
from crds.api_resources import RECREATE_REQUESTS, Resource
from gang import backends
from gang.values import GroupView
from kube.api import Cluster
from kube.informer import Informer
from reconcilers import observe
from reconcilers.views import node_view, pod_group_view, queue_view, recreate_request
from reconcilers.views.recreate_request import RecreateView

FOREIGN_SECONDS = 10.0
"""How long the first list of a kind that others define is waited for: without it a group is made that is there."""
log = logging.getLogger(__name__)


class Caches:
    """All of them; `start`, then `wait`, and `stop` at the end."""

    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        self.pods = observe.pods_informer(cluster)
        self.queues = queue_view.queues_informer(cluster)
        self.nodes = node_view.nodes_informer(cluster)
        makes, drives = settings.pods == "make", settings.in_place in ("auto", "kruise")
        self.groups: Foreign[GroupView] = Foreign(
            cluster.serves, backends.KINDS if makes else (), lambda kind: pod_group_view.groups_informer(cluster, kind)
        )
        self.recreations: Foreign[RecreateView] = Foreign(
            cluster.serves,
            (RECREATE_REQUESTS,) if makes and drives else (),
            lambda _: recreate_request.recreations_informer(cluster),
        )
        self._informers: tuple[Informer[Any], ...] = (self.pods, self.queues, *((self.nodes,) if makes else ()))
        self._foreign: tuple[Foreign[Any], ...] = (self.groups, self.recreations)
        self._all: tuple[Informer[Any] | Foreign[Any], ...] = (*self._informers, *self._foreign)

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        """Those that are always there."""
        return self._informers

    def tell(self, on_found: Callable[[], None]) -> None:
        """Call this from now on whenever a kind of others has come."""
        for each in self._foreign:
            each.on_found = on_found

    @property
    def served(self) -> frozenset[Resource]:
        """The kinds of others that are there."""
        return self.groups.served | self.recreations.served

    def start(self) -> None:
        """Begin to follow."""
        for each in self._all:
            each.start()

    def wait(self) -> None:
        """Until everything is there that a reconcile needs: without the pods it would create them again, without the
        queues fill those that drain."""
        for informer in self._informers:
            _wait_for(informer)
        for each in self._foreign:
            while not each.wait_asked(1.0):
                log.debug("waiting to hear which kinds there are")
            for informer in each.informers:
                if not informer.wait_synced(FOREIGN_SECONDS):
                    log.warning("beginning without the %s: %s", informer.resource.plural, informer.failing)

    def stop(self) -> None:
        """End all of it."""
        for each in self._all:
            each.stop()


def _wait_for(informer: Informer[Any]) -> None:
    told = ""
    while not informer.wait_synced(1.0):
        if informer.failing != told:
            log.warning("waiting for the %s: %s", informer.resource.plural, informer.failing)
        told = informer.failing
