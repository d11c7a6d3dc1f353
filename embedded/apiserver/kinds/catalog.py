"""The resources the embedded API server serves, built in or defined by CRDs.

One rule: whatever differs between resources is a value in their Kind; no handler asks for a resource by name.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from crds.api_resources import Resource
from embedded.apiserver.schema.schema import Node
from embedded.apiserver.status_errors import Cause
from kube.api import Manifest

Check = Callable[[Manifest, Manifest | None], Iterable[Cause]]
"""What is wrong with an object (and with the change from the old one), beyond its schema."""


Look = Callable[[str, str, str], Manifest | None]
"""Another object, by its resource's storage name, namespace and name."""


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where a resource keeps its number of replicas; dotted paths without the leading dot."""

    spec: str
    status: str
    selector: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column that `kubectl get` prints."""

    name: str
    type: str
    path: str
    priority: int = 0
    description: str = ""


def _no_check(new: Manifest, old: Manifest | None) -> Iterable[Cause]:  # noqa: ARG001
    return ()


def _no_admission(new: Manifest, look: Look) -> None:  # noqa: ARG001
    return


def _no_vetting(new: Manifest, nodes: Sequence[Manifest]) -> Iterable[Cause]:  # noqa: ARG001
    return ()


def _no_completion(new: Manifest, old: Manifest | None) -> None:  # noqa: ARG001
    return


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One resource and everything the handlers need to know of it."""

    resource: Resource
    singular: str
    schema: Node
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    scale: ScalePaths | None = None
    selectable: tuple[str, ...] = ()
    """Paths a field selector may name, beyond metadata.name and metadata.namespace."""
    columns: tuple[Column, ...] = ()
    generation: bool = False
    """Whether metadata.generation counts the changes of everything but metadata and status; of a custom resource
    without the subresource status, those of its status too."""
    counted: bool = True
    """Whether it counts at all; else it stays 1."""
    graceful: bool = False
    """Whether a deletion waits for the node."""
    custom: bool = False
    simple_names: bool = False
    """Whether names must be DNS labels (no dots)."""
    looks: int = 3
    """How often the metadata of an update is looked at, and what is wrong with it told."""
    status_at_birth: bool = False
    """Whether a status sent with a new object is kept."""
    versioned: bool = False
    """Whether an update of a built-in resource must say which version it changes, as one of a custom resource must."""
    upsert: bool = False
    """Whether a PUT makes an object that is not there."""
    shown_when_gone: bool = False
    """Whether a deletion is answered with the object instead of a Status."""
    admit: Callable[[Manifest, Look], None] = field(default=_no_admission)
    """What other objects say about a new one: completes it, or refuses it."""
    complete: Callable[[Manifest, Manifest | None], None] = field(default=_no_completion)
    """Fills in what the server owns, in place, before an object is judged; the old object is None for a new one."""
    check: Check = field(default=_no_check)

    vet: Callable[[Manifest, Sequence[Manifest]], Iterable[Cause]] = field(default=_no_vetting)
    """What the nodes would refuse of a new object, if its client asks; told in a dry run only."""

    @property
    def storage(self) -> str:
        """The name under which objects are stored: `plural` or `plural.group`."""
        return storage(self.resource)

    @property
    def has_status(self) -> bool:
        """Whether status is written through its own subresource only."""
        return "status" in self.subresources


def storage(resource: Resource) -> str:
    """The name under which a resource's objects are stored."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


class Catalog:
    """All kinds that are served at the moment."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._by_path: dict[tuple[str, str, str], Kind] = {}
        self._by_storage: dict[str, Kind] = {}
        for kind in kinds:
            self.register(kind)

    def register(self, kind: Kind) -> None:
        """Serve a kind, or serve it anew."""
        self.unregister(kind.storage)
        resource = kind.resource
        self._by_path[resource.group, resource.version, resource.plural] = kind
        self._by_storage[kind.storage] = kind

    def unregister(self, name: str) -> None:
        """Serve it no longer."""
        known = self._by_storage.pop(name, None)
        if known:
            del self._by_path[known.resource.group, known.resource.version, known.resource.plural]

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """The kind at a path of the API."""
        return self._by_path.get((group, version, plural))

    def stored(self, name: str) -> Kind | None:
        """The kind whose objects are stored under a name."""
        return self._by_storage.get(name)

    def selectable(self, name: str) -> tuple[str, ...]:
        """The selectable fields of a kind by its storage name."""
        kind = self._by_storage.get(name)
        return kind.selectable if kind else ()

    def builtin(self, group: str) -> bool:
        """Whether a group has resources that need no definition."""
        return any(kind.resource.group == group and not kind.custom for kind in self._by_storage.values())

    def kinds(self) -> list[Kind]:
        """All of them, in the order in which they came."""
        return list(self._by_storage.values())
