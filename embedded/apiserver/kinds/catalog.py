"""The resources that the embedded API server serves, built in or defined by CRDs.

One rule: every difference between resources is a value in their Kind; no handler tests for a resource by its name.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from crds.api_resources import Resource
from embedded.apiserver.schema.schema import SchemaNode
from embedded.apiserver.status_errors import Cause
from kube.api import Manifest

Check = Callable[[Manifest, Manifest | None], Iterable[Cause]]
"""Returns the errors in an object (and in the change from the old object), beyond those of its schema."""


ObjectGetter = Callable[[str, str, str], Manifest | None]
"""Returns another object, by its resource's storage name, namespace and name."""


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """The fields of a resource that hold its number of replicas: dotted paths without the leading dot."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One resource, and all facts that the handlers need about the resource."""

    resource: Resource
    singular: str
    schema: SchemaNode
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    scale: ScalePaths | None = None
    selectable: tuple[str, ...] = ()
    """The paths that a field selector may name, beyond metadata.name and metadata.namespace."""
    columns: tuple[Column, ...] = ()
    generation: bool = False
    """Whether objects have a metadata.generation. It counts the changes outside metadata and status; for a custom
    resource without the subresource status, also those of the status."""
    counts_generation: bool = True
    """Whether the generation counts changes; otherwise it stays 1."""
    graceful: bool = False
    """Whether a deletion waits for the node."""
    custom: bool = False
    simple_names: bool = False
    """Whether names must be DNS labels (no dots)."""
    metadata_checks: int = 3
    """How often an update repeats each error in the metadata, as a Kubernetes API server does."""
    keeps_initial_status: bool = False
    """Whether the status that a client sends with a new object is kept."""
    requires_version: bool = False
    """Whether an update of a built-in resource must name the version it changes, as that of a custom resource must."""
    create_on_update: bool = False
    """Whether a PUT creates an object that does not exist."""
    returns_deleted_object: bool = False
    """Whether a deletion is answered with the object instead of a Status."""
    admit: Callable[[Manifest, ObjectGetter], None] = field(default=lambda *_: None)
    """Completes or refuses a new object, depending on other objects."""
    complete: Callable[[Manifest, Manifest | None], None] = field(default=lambda *_: None)
    """Fills in the server's fields, in place, before an object is validated; the old object is None for a new object.
    """
    check: Check = field(default=lambda *_: ())

    vet: Callable[[Manifest, Sequence[Manifest]], Iterable[Cause]] = field(default=lambda *_: ())
    """Returns the errors that the nodes would find in a new object; called only in a dry run."""

    @property
    def storage(self) -> str:
        """The name under which the objects are stored: `plural` or `plural.group`."""
        return storage(self.resource)

    @property
    def has_status(self) -> bool:
        """Whether status is written through its own subresource only."""
        return "status" in self.subresources


def storage(resource: Resource) -> str:
    """Return the name under which a resource's objects are stored."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


class Catalog:
    """All kinds that the server serves at present."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._by_path: dict[tuple[str, str, str], Kind] = {}
        self._by_storage: dict[str, Kind] = {}
        for kind in kinds:
            self.register(kind)

    def register(self, kind: Kind) -> None:
        """Serve a kind from now on, in place of its earlier definition."""
        self.unregister(kind.storage)
        resource = kind.resource
        self._by_path[resource.group, resource.version, resource.plural] = kind
        self._by_storage[kind.storage] = kind

    def unregister(self, name: str) -> None:
        """Stop serving a kind, by its storage name."""
        kind = self._by_storage.pop(name, None)
        if kind:
            del self._by_path[kind.resource.group, kind.resource.version, kind.resource.plural]

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind at a path of the API."""
        return self._by_path.get((group, version, plural))

    def by_storage(self, name: str) -> Kind | None:
        """Return the kind whose objects are stored under a name."""
        return self._by_storage.get(name)

    def selectable(self, name: str) -> tuple[str, ...]:
        """Return the selectable fields of a kind by its storage name."""
        return self._by_storage[name].selectable if name in self._by_storage else ()

    def has_builtin_group(self, group: str) -> bool:
        """Return whether a group has built-in resources."""
        return any(kind.resource.group == group and not kind.custom for kind in self._by_storage.values())

    def kinds(self) -> list[Kind]:
        """Return all kinds in the order of their registration."""
        return list(self._by_storage.values())
