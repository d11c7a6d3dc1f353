"""The product's informers without their threads: the simulation delivers their events one by one.

One rule: events may be late, but arrive in order and completely, as in a watch.
"""

from collections.abc import Callable, Mapping
from typing import Any

from embedded.apiserver.kinds.catalog import storage
from embedded.apiserver.storage.journal import Change
from kube import errors
from kube.informer import Informer
from reconcilers.views.pod_view import PodView
from tests.faults.api import event

_TRIMMED: dict[Any, Any] = {}


class Feed:
    """The events of one informer, and the position up to which the events were delivered."""

    def __init__(self, informer: Informer[Any], log: list[Change]) -> None:
        self.informer = informer
        self._log = log
        self._at = 0
        self._selected = _selector(informer.label_selector)
        self._trim, self._raw = informer.trim, b""
        informer.trim = self._trimmed

    @property
    def synced(self) -> bool:
        return self.informer.synced

    @property
    def behind(self) -> bool:
        """Whether some events were not delivered yet."""
        return self.synced and self._at < len(self._log)

    def list(self) -> bool:
        """Fetch the first list, and return whether the list was fetched."""
        before = len(self._log)
        try:
            reflector = self.informer._reflector
            reflector._version = reflector._sink.replace(reflector._pages())
        except errors.ClusterError:
            return False
        self._at = before
        return True

    def deliver(self) -> None:
        """Deliver the next event."""
        change = self._log[self._at]
        self._at += 1
        told = event(change, self._selected)
        if told is not None:
            self._raw = change.object.raw
            self.informer._reflector._sink.apply(told)
            self._raw = b""

    def _trimmed(self, manifest: Any) -> Any:
        """Return the trimmed object. Each object is trimmed once in this process."""
        if not self._raw:
            return self._trim(manifest)
        key = (self._trim, self._raw)
        if key not in _TRIMMED:
            _TRIMMED[key] = self._trim(manifest)
        return _TRIMMED[key]


class Cache:
    """The pod cache of a worker (`reconcilers.observe.PodCache`). The cache does not wait in real time."""

    def __init__(self, feed: Feed, hears: Callable[[], bool]) -> None:
        self._feed, self._hears = feed, hears

    @property
    def synced(self) -> bool:
        return self._feed.synced

    def wait_for(self, resource_version: int, timeout: float) -> bool:  # noqa: ARG002
        """Deliver the outstanding events up to this version, unless a fault makes the cache lag."""
        while self._feed.informer.resource_version < resource_version and self._feed.behind and self._hears():
            self._feed.deliver()
        return self._feed.informer.resource_version >= resource_version

    def indexed(self, key: str) -> list[PodView]:
        found: list[PodView] = self._feed.informer.indexed(key)
        return found


class Logs:
    """All changes of all resources, in order."""

    def __init__(self) -> None:
        self._by_resource: dict[str, list[Change]] = {}

    def hear(self, resource: str, change: Change) -> None:
        """Record a change that the store publishes."""
        self.of_storage(resource).append(change)

    def of(self, informer: Informer[Any]) -> list[Change]:
        """Return the changes that an informer's watch would show."""
        return self.of_storage(storage(informer.resource))

    def of_storage(self, resource: str) -> list[Change]:
        return self._by_resource.setdefault(resource, [])


def _selector(text: str) -> Callable[[Mapping[str, str]], bool]:
    assert "=" not in text, "the selector may only require that a label exists"
    return lambda labels: not text or text in labels
