"""Queues, picks, histories and visitors for the tests of pages about queues."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from coordinator.access.readers import EVERYWHERE, Reader
from coordinator.dashboard import drawing, moments
from coordinator.dashboard.asked import Asked
from coordinator.dashboard.elements import Page
from coordinator.dashboard.readings import Reading, queue_wait
from coordinator.dashboard.visitors import Visitor
from coordinator.errors import CoordinatorError
from coordinator.query.bounds import Bounds
from coordinator.query.questions import Document, UnknownObject
from coordinator.query.remote_queries import History
from kube import errors
from kube.api import Manifest

NOW = 1_767_229_200.0
"""2026-01-01T01:00:00Z."""
CREATED = "2026-01-01T00:00:00Z"
GPU = "nvidia.com/gpu"
ALIVE: Document = {
    "leader": "host-1",
    "epoch": 3,
    "failing": "",
    "redis": "",
    "workers": {"w1": 16},
    "jobs": {"waiting": 3, "admitted": 2},
    "work": {"ready": 0},
}


def queue(name: str, *, spec: Document | None = None, **status: Any) -> Document:
    """Return a queue as a coordinator tells it."""
    figures = {"pending": 0, "admitted": 0, "usage": {}, "share": "0%", "target": "0%", "lag": None, "first": None}
    return {"metadata": {"name": name}, "spec": {"weight": 1, **(spec or {})}, "status": figures | status}


def pick(number: int, job: str, **fields: Any) -> Document:
    """Return a forecast pick."""
    return {"pick": number, "job": job, "uid": job, "queue": "a", "workers": 0, "demand": {GPU: "8"}} | fields


def job(name: str, status: Document | None = None, **fields: Any) -> Manifest:
    """Return a job of namespace team and of queue a, unless fields say otherwise."""
    metadata = {"namespace": "team", "name": name, "uid": f"uid-{name}", "creationTimestamp": CREATED}
    metadata |= {each: fields.pop(each) for each in ("namespace", "creationTimestamp") if each in fields}
    spec = {"torchTaskSpecs": {"Worker": {"numTasks": 2}}, "schedulingPolicy": {"queue": "a"}, **fields}
    return {"metadata": {**metadata, "resourceVersion": "1"}, "spec": spec, "status": status or {"phase": "Queued"}}


def bounds(*namespaces: str) -> Bounds:
    """Return what a reader of some namespaces is told: queues of these names; without a namespace, everything."""
    reader = Reader(namespaces=frozenset(namespaces)) if namespaces else EVERYWHERE
    return Bounds(reader, lambda name: name in namespaces, lambda name: name in namespaces)


def reading(
    queues: Sequence[Document] = (),
    fitting: Sequence[Document] = (),
    in_order: Sequence[Document] = (),
    pool: Document | None = None,
    waiting: int = 0,
    **fields: Any,
) -> Reading:
    """Return what the cluster shows."""
    waits = ((queue_wait(item["metadata"]["name"]), item["status"].get("oldestWaitSeconds")) for item in queues)
    given = {"status": ALIVE, "began": moments.began(waits, NOW, {}), "figures_at": NOW, **fields}
    given["has_idle_growth"] = any(item["status"].get("idleUsage") for item in queues)
    upcoming = {"items": [*fitting], "pool": pool or {"capacity": None, "used": {}}, "waiting": waiting}
    return Reading(number=1, at=NOW, queues=tuple(queues), upcoming=upcoming, in_order={"items": [*in_order]}, **given)


def asked(found: Reading, *namespaces: str, loaded: Any = None, **parameters: str) -> Asked:
    """Return a request for a page."""
    return Asked(parameters, found, bounds(*namespaces), loaded)


def html(page: Page) -> str:
    """Return a whole page as a browser gets it."""
    frame = {"address": "/", "secret": "", "visitor": "", "cluster": "", "links": (), "release": "", "leaves": False}
    text = drawing.document(page, drawing.draw(page), frame)
    ids = re.findall(r'<[a-z]+ id="([^"]*)"', text)
    assert len(ids) == len({*ids}), "the script finds each element by its id"
    assert {*page.sections} <= {*ids}, "a section without an element of its name is not followed"
    return text


def values(page: Page, section: str) -> list[Any]:
    """Return what the elements of a section show."""
    return [each.values for each in page.sections[section]]


@dataclass
class FakeServers:
    """The API server, a coordinator and a recorder, that note what they are asked."""

    objects: dict[str, Manifest] = field(default_factory=dict)
    known: dict[str, Document] = field(default_factory=dict)
    order: list[Document] = field(default_factory=list)
    past: Callable[[str], Document] | None = None
    failing: dict[str, Exception] = field(default_factory=dict)
    noted: list[str] = field(default_factory=list)

    def get(self, _resource: Any, name: str, _namespace: str = "") -> Manifest:
        """Return a TenantQueue."""
        self._note("object")
        if name not in self.objects:
            raise errors.NotFound(f"there is no {name}")
        return self.objects[name]

    def queue(self, name: str) -> Document:
        """Return a queue with its figures."""
        self._note("queue")
        if name not in self.known:
            raise UnknownObject(f"there is no queue {name}")
        return self.known[name]

    def places(self, _names: Any) -> list[Document]:
        """Return the order of the waiting jobs."""
        self._note("places")
        return self.order

    def history(self, path: str, namespace: str = "") -> Document:
        """Return an answer of the recorder."""
        assert not namespace
        self._note(path)
        if self.past is None:
            raise CoordinatorError("no recorder keeps the history: recorder.enabled of the chart starts one")
        return self.past(path)

    def visitor(self, *namespaces: str) -> Visitor:
        """Return a visitor who may read some namespaces, or all."""
        told = bounds(*namespaces)
        return Visitor(
            "me",
            cast(Any, self),
            lambda: cast(Any, self),
            lambda: History(self.history),
            lambda _: told,
            may_act=True,
            may=lambda _: True,
        )

    def _note(self, what: str) -> None:
        self.noted.append(what)
        if what in self.failing:
            raise self.failing[what]
