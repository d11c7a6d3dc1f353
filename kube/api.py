"""The operations of a Kubernetes API that torchq uses, for any server of that API.

One rule: bodies are plain JSON values, parsed once. A change is a patch, never a replace, so that no field unknown to
torchq is lost.
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
    """One line of a watch. The object of a BOOKMARK carries only a resourceVersion."""

    kind: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Manifest


class PieceStream(Iterator[bytes], Protocol):
    """An open answer, read in pieces. Close it when done: it holds a connection."""

    def close(self) -> None:
        """End the stream, from any thread; a reader that waits for the next piece gets StopIteration."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The part of a container's output to send, and its form, as Kubernetes' PodLogOptions."""

    previous: bool = False
    """Whether to send the run before the last restart."""
    tail: int | None = None
    """The number of last lines to send; None for all lines."""
    since: str = ""
    """The time (RFC 3339) from which output is sent; empty for all output. A server may send some older output."""
    timestamps: bool = False
    """Whether each line begins with its time and a space."""
    positions: bool = False
    """Whether each line begins with `@`, the number of bytes before it in the output of the run, and a space.

    Only the embedded API server knows this option. Others ignore it, and their lines begin with the time.
    """


ALL_OUTPUT = LogOptions()


class Watch(Iterator[WatchEvent], Protocol):
    """An open watch. Close it when done: it holds a connection."""

    def close(self) -> None:
        """End the watch, from any thread; a reader that waits for its next event gets StopIteration."""


class Cluster(Protocol):
    """A Kubernetes API. Every method may raise any `kube.errors.ClusterError`; safe to share between threads."""

    def serves(self, resource: Resource) -> bool:
        """Return whether the server serves the resource; a foreign kind is served only where its CRD is installed."""

    def get(self, resource: Resource, name: str, namespace: str = "") -> Manifest:
        """Return one object. Raise NotFound if the object does not exist."""

    def list(
        self, resource: Resource, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> Listing:
        """Return all objects of one namespace or of all namespaces. The list is read in pages."""

    def pages(self, resource: Resource, namespace: str = "", *, label_selector: str = "") -> Iterator[Listing]:
        """Yield the objects of `list` page by page; all pages have one version. The caller need not hold all objects.

        Reading any page raises Expired if the server does not remember the list any longer; the caller begins again.
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
        """Watch the changes after a resourceVersion, with bookmarks, until the server ends the watch.

        Raise Expired if the version is too old.
        """

    def create(self, resource: Resource, body: Manifest, namespace: str = "", *, dry_run: bool = False) -> Manifest:
        """Create an object and return it as stored.

        Raise Invalid for unknown fields, and AlreadyExists if its name is taken.
        """

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
        """Change an object or its subresource.

        With a resource_version (merge patch only), raise Conflict if the object is newer.
        """

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
        """Delete an object, and its dependents in the background. Raise Conflict if the object has another uid."""

    def log_end(
        self, pod: str, namespace: str, container: str, *, lines: int, most: int, previous: bool = False
    ) -> str:
        """Return the last lines of a container's output, at most the last `most` bytes. With `previous`, return the
        lines of the run before the last restart."""

    def logs(
        self, pod: str, namespace: str, container: str = "", *, follow: bool = False, options: LogOptions = ALL_OUTPUT
    ) -> PieceStream:
        """Yield a container's output in pieces as they come; with `follow`, until the output ends."""

    def job_runs(self, namespace: str, uid: str) -> Sequence[Manifest]:
        """Return the runs of all containers of a TorchJob, also of pods that are gone, in the order of their beginning.

        Only the embedded API server lists these runs. Raise NotFound for a job that does not exist, and on other
        servers.
        """

    def job_log(
        self, namespace: str, uid: str, run: str, *, follow: bool = False, options: LogOptions = ALL_OUTPUT
    ) -> PieceStream:
        """Yield the output of one of these runs, as `logs` does."""
