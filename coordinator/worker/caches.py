"""The caches of a worker process: pods, queues, nodes, and the kinds of other projects. Jobs are not cached: a worker
reads each job from the API server.

One rule: a cache that is missing or not synced yet costs a request or a wait, and never leads to a wrong pod.
"""

import logging
from collections.abc import Callable
from typing import Any

from coordinator.cache import optional_kinds
from coordinator.cache.optional_kinds import OptionalKinds
from coordinator.settings import Settings
from crds import scale_request
from crds.api_resources import Resource
from gang import backends
from gang.values import GroupView
from kube.api import Cluster
from kube.informer import Informer
from kube.process.turns import Turns
from reconcilers import observe
from reconcilers.observe import Caches, GonePods
from reconcilers.views import node_view, pod_group_view, queue_view, recreate_request, scale_request_view
from reconcilers.views.recreate_request import RecreateView
from reconcilers.views.scale_request_view import RequestView

FOREIGN_SECONDS = 10.0
"""How long a worker waits for the first list of an optional kind. Without that list, the worker may try to create a
group that exists."""
log = logging.getLogger(__name__)


class WorkerCaches:
    """All caches of a worker process. Call `start`, then `wait`, and `stop` at the end."""

    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        self.gone_pods = GonePods()
        self.pods = observe.pods_informer(cluster, self.gone_pods.note)
        self.queues = queue_view.queues_informer(cluster)
        self.nodes = node_view.nodes_informer(cluster)
        makes_pods, may_use_kruise = settings.pods == "make", settings.in_place in ("auto", "kruise")
        self.groups: OptionalKinds[GroupView] = OptionalKinds(
            cluster.serves,
            backends.KINDS if makes_pods else (),
            lambda kind: pod_group_view.groups_informer(cluster, kind),
        )
        self.recreations: OptionalKinds[RecreateView] = OptionalKinds(
            cluster.serves,
            optional_kinds.REQUESTS if makes_pods and may_use_kruise else (),
            lambda kind: recreate_request.recreations_informer(cluster, kind),
        )
        self.requests: OptionalKinds[RequestView] = OptionalKinds(
            cluster.serves,
            scale_request.RESOURCES.values(),
            lambda kind: scale_request_view.requests_informer(cluster, kind),
        )
        self.informers: tuple[Informer[Any], ...] = (self.pods, self.queues, *((self.nodes,) if makes_pods else ()))
        """The informers of kinds that every cluster serves."""
        self._foreign: tuple[OptionalKinds[Any], ...] = (self.groups, self.recreations, self.requests)
        self._all: tuple[Informer[Any] | OptionalKinds[Any], ...] = (*self.informers, *self._foreign)

    @property
    def reconcile_caches(self) -> Caches:
        """The caches of a reconciler, beside the cache of pods."""
        return Caches(
            queues=self.queues,
            nodes=self.nodes,
            recreations=self.recreations,
            groups=self.groups,
            requests=self.requests,
            gone_pods=self.gone_pods,
        )

    @property
    def all_informers(self) -> tuple[Informer[Any], ...]:
        """All informers, also those of optional kinds that the API server serves."""
        return (*self.informers, *(informer for kinds in self._foreign for informer in kinds.informers))

    def set_on_found(self, on_found: Callable[[], None]) -> None:
        """Call `on_found` from now on whenever an optional kind is installed."""
        for kinds in self._foreign:
            kinds.on_found = on_found

    @property
    def served(self) -> frozenset[Resource]:
        """The optional kinds that the API server serves."""
        return self.groups.served | self.recreations.served

    def start(self, turns: Turns | None = None) -> None:
        """Start all caches, each as one of the loops in `turns`."""
        for cache in self._all:
            cache.start(turns)

    def wait(self) -> None:
        """Wait until the caches hold all that a reconcile needs.

        Without the pods, a reconcile would create them again; without the queues, it would fill queues that drain.
        """
        for informer in self.informers:
            _wait_for(informer)
        for kinds in self._foreign:
            while not kinds.wait_discovered(1.0):
                log.debug("waiting to hear which kinds there are")
            for informer in kinds.informers:
                if not informer.wait_synced(FOREIGN_SECONDS):
                    log.warning("starting without the cache of %s: %s", informer.resource.plural, informer.failing)

    def stop(self) -> None:
        """Stop all caches."""
        for cache in self._all:
            cache.stop()


def _wait_for(informer: Informer[Any]) -> None:
    logged = ""
    while not informer.wait_synced(1.0):
        if informer.failing != logged:
            log.warning("waiting for the cache of %s: %s", informer.resource.plural, informer.failing)
        logged = informer.failing
