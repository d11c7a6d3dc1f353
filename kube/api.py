"""What torchq asks of a Kubernetes API, whoever serves it.

One rule: bodies are plain JSON values, parsed once; a change is a patch, never a replace, so that no field unknown to
us is lost.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from crds.api_resources import Resource

Manifest = dict[str, Any]
"""A Kubernetes object as JSON."""

Patch = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A mapping is a JSON merge patch (RFC 7386), a sequence a JSON patch (RFC 6902)."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A consistent list: its items and the resourceVersion to watch from."""

    items: list[Manifest]
    resource_version: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One line of a watch. A BOOKMARK's object carries only a resourceVersion."""

    kind: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Manifest


class Watch(Iterator[WatchEvent], Protocol):
    """An open watch. Close it when done: it holds a connection."""

    def close(self) -> None:
        """End the watch, from any thread; whoever is waiting for its next event gets StopIteration."""


class Cluster(Protocol):
    """A Kubernetes API. Every method may raise any `kube.errors.ClusterError`; safe to share between threads."""

    def serves(self, resource: Resource) -> bool:
        """Whether the server knows the resource: others' kinds are there only where somebody has installed them."""

    def get(self, resource: Resource, name: str, namespace: str = "") -> Manifest:
        """One object. NotFound if it is not there."""

    def list(
        self, resource: Resource, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> Listing:
        """All objects (paged underneath), of one namespace or of all."""

    def pages(self, resource: Resource, namespace: str = "", *, label_selector: str = "") -> Iterator[Listing]:
        """The same list page by page, for who need not hold it whole; all pages carry one resourceVersion.

        Expired, at any page, if reading them took longer than the server remembers: begin again.
        """

    def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        resource_version: str,
        label_selector: str = "",
        timeout_seconds: int = 240,
    ) -> Watch:
        """Changes after a resourceVersion, bookmarks included, until the server ends it. Expired if it is too old."""

    def create(self, resource: Resource, body: Manifest, namespace: str = "", *, dry_run: bool = False) -> Manifest:
        """Make an object (unknown fields are refused) and return it as stored. AlreadyExists if its name is taken."""

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: Patch,
        namespace: str = "",
        *,
        subresource: str = "",
        resource_version: str = "",
        dry_run: bool = False,
    ) -> Manifest:
        """Change an object or its subresource. With a resource_version (merge patch only), Conflict if it is newer."""

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
    ) -> None:
        """Delete an object, its dependents in the background. With a uid, Conflict if another object has its name."""

    def log_end(
        self, pod: str, namespace: str, container: str, *, lines: int, most: int, previous: bool = False
    ) -> str:
        """The last lines of a container's output, of these the last `most` bytes; with `previous`, of the run before
        the last restart."""

    def logs(self, pod: str, namespace: str, container: str = "", *, follow: bool = False) -> Iterator[bytes]:
        """A container's output in pieces as they come; with follow, until it ends."""
