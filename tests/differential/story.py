"""The story of an episode: a few objects of some kinds in a separate namespace, and the calls about them.

One rule: the choice of a call does not depend on earlier answers; calls that fail are tests as well.
"""

import json
import random
from collections.abc import Iterator
from typing import Any

from crds.api_resources import CRDS, NAMESPACES, NODES, PODS, PRIORITY_CLASSES, TENANT_QUEUES, TORCHJOBS, Resource
from tests.differential.manifests import MAKERS, make
from tests.differential.wire import Call
from tests.support.kube.widgets import WIDGETS

_WEIGHTS: dict[Resource, int] = {WIDGETS: 5, TORCHJOBS: 4, PODS: 4, TENANT_QUEUES: 2, CRDS: 1}


class Story:
    """Makes the calls of one episode."""

    def __init__(self, r: random.Random, namespace: str) -> None:
        self.r = r
        self.namespace = namespace
        kinds = list(MAKERS)
        self.kinds = r.choices(kinds, [_WEIGHTS.get(kind, 1) for kind in kinds], k=2)
        self.names = [f"{namespace}-{word}" for word in ("one", "two")]

    def watches(self) -> Iterator[Call]:
        """Yield watches over the whole episode, from its first version on."""
        for kind in dict.fromkeys(self.kinds):
            if kind in {NAMESPACES, CRDS, PRIORITY_CLASSES, NODES, TENANT_QUEUES}:
                continue  # other episodes write these kinds at the same time
            base = f"{kind.path(self.namespace)}?watch=1&timeoutSeconds=1&resourceVersion=@{{start}}"
            yield Call("watch", "GET", base)
            yield Call("watch", "GET", base + "&labelSelector=" + self.r.choice(["app=a", "app!=a", "tier=x", "!app"]))
            yield Call("watch", "GET", base + "&fieldSelector=metadata.name=" + self.name(kind, 0))
            if kind == PODS:
                yield Call(
                    "watch", "GET", base + "&fieldSelector=" + self.r.choice(["spec.nodeName=", "status.phase=Pending"])
                )

    def farewell(self) -> Iterator[Call]:
        """Yield the calls that delete all objects of the episode."""
        freed = json.dumps({"metadata": {"finalizers": None}})
        for kind in dict.fromkeys(kind for kind in self.kinds if not kind.namespaced):
            for index in range(len(self.names)):
                path = kind.path(name=self.name(kind, index))
                yield Call("over", "PATCH", path, freed, (("Content-Type", "application/merge-patch+json"),))
                yield Call("over", "DELETE", path)
        yield Call("over", "DELETE", f"/api/v1/namespaces/{self.namespace}")

    def kind(self) -> Resource:
        """Return one of the story's kinds at random."""
        return self.r.choice(self.kinds)

    def name(self, kind: Resource, index: int | None = None) -> str:
        """Return one of the story's names, in a form that is valid for the kind."""
        name = self.names[self.r.randrange(2) if index is None else index]
        return f"{name.replace('-', '')}.diff.example.com" if kind == CRDS else name

    def body(self, kind: Resource, name: str) -> dict[str, Any]:
        """Return a valid object."""
        return make(self.r, kind, name, self.namespace)

    def key(self, kind: Resource, name: str) -> str:
        """Return the key under which answers about an object are stored."""
        return f"{kind.kind}/{self.namespace if kind.namespaced else ''}/{name}"

    def post(self, label: str, kind: Resource, body: Any, query: str = "", **headers: str) -> Call:
        """Return the call that creates an object."""
        return call(f"{label} {kind.plural}", "POST", kind.path(self.namespace) + query, body, headers)

    def current(self, kind: Resource, name: str) -> dict[str, Any]:
        """Return a valid object with the latest version in the answers."""
        body = self.body(kind, name)
        body["metadata"]["resourceVersion"] = "@{rv:" + self.key(kind, name) + "}"
        return body


def quoted(text: str) -> str:
    """Return a selector in quoted form for a query."""
    return text.replace("%", "%25").replace("&", "%26").replace("=", "%3D").replace("+", "%2B")


def call(label: str, method: str, path: str, body: Any, headers: dict[str, str] | None = None) -> Call:
    """Return a call with a JSON body."""
    text = None if body is None and method == "DELETE" else json.dumps(body)
    return Call(label, method, path, text, tuple((headers or {}).items()))
