"""The visitor that a login makes: what is asked for it, and with whose rights.

One rule: pods, events, logs and changes are asked for with the visitor's own token. What a coordinator tells the
dashboard about everybody passes the rights of the visitor.
"""

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from coordinator.access.shown_tokens import ShownTokens
from coordinator.dashboard.access.rights import ReviewPace, Rights
from coordinator.dashboard.readings import Reading, Readings
from coordinator.dashboard.visitors import Visitor
from coordinator.errors import CoordinatorError
from coordinator.query.bounds import BoundQueries, Bounds
from coordinator.query.questions import Queries
from coordinator.query.remote_queries import Fetch, History
from kube.client import KubernetesCluster

_ACCOUNT = "system:serviceaccount:"
ANY_NAMESPACE = "default"
"""The namespace of whose account the history is asked for somebody who may read all of them."""


class NotShown(CoordinatorError):
    """The visitor may not see what was asked for."""


class SeenNames:
    """The namespaces and queues that the newest reading has; safe to share between threads."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings
        self._lock = threading.Lock()
        self._of: tuple[int, int] | None = None
        self._names: tuple[frozenset[str], frozenset[str]] = frozenset(), frozenset()

    def __call__(self) -> tuple[frozenset[str], frozenset[str]]:
        """Return the names."""
        reading: Reading = self._readings.present
        version = reading.number, reading.jobs_version
        with self._lock:
            if self._of != version:
                namespaces = self._names[0]
                if self._of is None or self._of[1] != reading.jobs_version:
                    namespaces = frozenset(job["metadata"]["namespace"] for job in reading.jobs)
                queues = frozenset(item["metadata"]["name"] for item in reading.queues)
                # The same names are the same objects: one comparison of long sets is enough for all visitors.
                names = namespaces, queues
                self._of, self._names = version, self._names if names == self._names else names
            return self._names


@dataclass(frozen=True, slots=True)
class Visits:
    """Makes the visitors of a dashboard in the cluster."""

    seen: SeenNames
    queries: Callable[[], Queries]
    """A function that returns access to a coordinator with the dashboard's own token."""
    history: Callable[[ShownTokens], Fetch]
    """A function that returns access to the recorder with such tokens. Raises CoordinatorError if there is none."""
    may_act: bool
    pace: ReviewPace = field(default_factory=ReviewPace)
    clock: Callable[[], float] = time.monotonic

    def make(self, name: str, cluster: KubernetesCluster) -> Visitor:
        """Return the visitor of an account, by its name and the API server as its token sees it."""
        own = name.removeprefix(_ACCOUNT).partition(":")[0] if name.startswith(_ACCOUNT) else ""
        rights = Rights(cluster, own, self.pace, self.clock)

        def bounds(named: Collection[str]) -> Bounds:
            return rights.bounds(*self.seen(), named)

        return Visitor(
            name=name,
            cluster=cluster,
            queries=lambda: BoundQueries(self.queries(), bounds),
            history=partial(self._history, cluster, own, bounds),
            bounds=bounds,
            may_act=self.may_act,
            may=rights.may,
            known_bounds=lambda: rights.known_bounds(*self.seen()),
        )

    def _history(self, cluster: KubernetesCluster, own: str, bounds: Callable[[Collection[str]], Bounds]) -> History:
        """Return access to the recorder, which names what the accounts of a namespace may read. For these accounts the
        visitor asks with its own token, as commands do."""

        def fetch(path: str, namespace: str = "") -> Any:
            reader = bounds((namespace,) if namespace else ()).reader
            asked = namespace or own or min(reader.namespaces, default=ANY_NAMESPACE)
            if not reader.may_read(asked):
                raise NotShown(f"the history of namespace {asked} is shown to accounts that may list its TorchJobs")
            notes: list[str] = []
            is_about_all = reader.everywhere and not namespace
            tokens = ShownTokens(cluster, asked, everywhere=is_about_all, say=notes.append)
            try:
                return self.history(tokens)(path, asked)
            except CoordinatorError as error:
                raise CoordinatorError("; ".join([str(error), *notes])) from error

        return History(fetch)
