"""Jobs, visitors and clusters for the tests of pages about jobs."""

from collections.abc import Callable, Sequence
from typing import Any, cast

from coordinator.access.readers import EVERYWHERE, Reader
from coordinator.dashboard import drawing
from coordinator.dashboard.asked import Asked
from coordinator.dashboard.elements import Element, Page
from coordinator.dashboard.readings import Reading
from coordinator.dashboard.visitors import Visitor
from coordinator.errors import CoordinatorError
from coordinator.query.bounds import Bounds
from coordinator.query.questions import Queries
from coordinator.query.remote_queries import History
from crds.api_resources import TORCHJOBS, Resource
from kube import errors
from kube.api import Listing, Manifest
from tests.support.coordinator.desk import task

NOW = 1_767_229_200.0
"""2026-01-01T01:00:00Z."""
CREATED = "2026-01-01T00:00:00Z"


def job(name: str = "train", status: dict[str, Any] | None = None, **spec: Any) -> Manifest:
    """Return a job of namespace team."""
    namespace = spec.pop("namespace", "team")
    metadata = {"namespace": namespace, "name": name, "uid": f"uid-{name}", "creationTimestamp": CREATED}
    metadata |= {"resourceVersion": "1", "annotations": spec.pop("annotations", {})}
    metadata |= {"creationTimestamp": spec.pop("created", CREATED)}
    tasks = {"Master": task(), "Worker": task(3)}
    return {"metadata": metadata, "spec": {"torchTaskSpecs": tasks, **spec}, "status": status or {}}


def bounds(*namespaces: str) -> Bounds:
    """Return what a reader of some namespaces is told; without a namespace, everything."""
    reader = Reader(namespaces=frozenset(namespaces)) if namespaces else EVERYWHERE
    return Bounds(reader, lambda _: not namespaces, lambda _: not namespaces)


def asked(loaded: Any = None, jobs: Sequence[Manifest] = (), *namespaces: str, **parameters: str) -> Asked:
    """Return a request for a page."""
    return Asked(parameters, Reading(number=1, at=NOW, jobs=tuple(jobs)), bounds(*namespaces), loaded, may_act=True)


def html(page: Page) -> str:
    """Return a whole page as a browser gets it."""
    frame = {"address": "/", "secret": "", "visitor": "", "cluster": "", "links": (), "release": "", "leaves": False}
    return drawing.document(page, drawing.draw(page), frame)


def texts(elements: Sequence[Element]) -> list[Any]:
    """Return what elements show."""
    return [each.values for each in elements]


class FakeCluster:
    """An API server with some jobs and pods, that counts what it is asked."""

    def __init__(self, *jobs: Manifest) -> None:
        self.jobs = {job["metadata"]["name"]: job for job in jobs}
        self.asked: list[str] = []
        self.failing: dict[str, errors.ClusterError] = {}

    def get(self, resource: Resource, name: str, _namespace: str = "") -> Manifest:
        """Return a job."""
        self._note(resource)
        assert resource == TORCHJOBS
        if name not in self.jobs:
            raise errors.NotFound(f"there is no {name}")
        return self.jobs[name]

    def list(self, resource: Resource, *_: str, **__: str) -> Listing:
        """Return no objects."""
        self._note(resource)
        return Listing([], "1")

    def serves(self, _: Resource) -> bool:
        """Return that there are no gang schedulers."""
        return False

    def count(self, resource: Resource = TORCHJOBS) -> int:
        """Return how often objects of a kind were asked for."""
        return self.asked.count(resource.plural)

    def _note(self, resource: Resource) -> None:
        self.asked.append(resource.plural)
        if resource.plural in self.failing:
            raise self.failing[resource.plural]


class FakeQueries:
    """A coordinator."""

    def __init__(self, place: dict[str, Any] | None = None, reports: dict[str, Any] | None = None) -> None:
        self.place, self.told = place, reports or {}

    def job(self, _: Any) -> dict[str, Any]:
        """Return the place of the job."""
        if self.place is None:
            raise CoordinatorError("no coordinator answers")
        return self.place

    def reports(self, _: Any) -> dict[str, Any]:
        """Return the reports."""
        return self.told


def visitor(
    cluster: FakeCluster, queries: Any = None, history: Callable[..., Any] | None = None, *namespaces: str
) -> Visitor:
    """Return a visitor with the rights for some namespaces, or for all."""

    def recorder() -> Any:
        if history is None:
            raise CoordinatorError("no recorder keeps the history")
        return History(history)

    told = bounds(*namespaces)
    return Visitor(
        "me",
        cast(Any, cluster),
        lambda: cast(Queries, queries or FakeQueries()),
        recorder,
        lambda _: told,
        may_act=True,
        may=lambda _: True,
    )
