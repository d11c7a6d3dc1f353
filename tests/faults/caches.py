"""The product's informers without their threads: events arrive one by one, when the simulation says so.

One rule: late, but in order and complete, as a watch is.
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
    """One informer and how far it has come."""

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
        """Whether there is something it has not heard of."""
        return self.synced and self._at < len(self._log)

    def list(self) -> bool:
        """The first list; whether it came."""
        before = len(self._log)
        try:
            reflector = self.informer._reflector
            reflector._version = reflector._sink.replace(reflector._pages())
        except errors.ClusterError:
            return False
        self._at = before
        return True

    def deliver(self) -> None:
        """The next event."""
        change = self._log[self._at]
        self._at += 1
        told = event(change, self._selected)
        if told is not None:
            self._raw = change.object.raw
            self.informer._reflector._sink.apply(told)
            self._raw = b""

    def _trimmed(self, manifest: Any) -> Any:
        """What is kept of an object, made once in this process."""
        if not self._raw:
            return self._trim(manifest)
        key = (self._trim, self._raw)
        if key not in _TRIMMED:
            _TRIMMED[key] = self._trim(manifest)
        return _TRIMMED[key]


class Cache:
    """A worker's pods, for which nobody really waits (`reconcilers.observe.PodCache`)."""

    def __init__(self, feed: Feed, hears: Callable[[], bool]) -> None:
        self._feed, self._hears = feed, hears

    @property
    def synced(self) -> bool:
        return self._feed.synced

    def wait_for(self, resource_version: int, timeout: float) -> bool:  # noqa: ARG002
        """What is on its way arrives within the timeout, unless the cache is made to lag."""
        while self._feed.informer.resource_version < resource_version and self._feed.behind and self._hears():
            self._feed.deliver()
        return self._feed.informer.resource_version >= resource_version

    def indexed(self, key: str) -> list[PodView]:
        found: list[PodView] = self._feed.informer.indexed(key)
        return found


class Logs:
    """Every change of every resource, in order."""

    def __init__(self) -> None:
        self._by_resource: dict[str, list[Change]] = {}

    def hear(self, resource: str, change: Change) -> None:
        """What the store tells its followers."""
        self.of_storage(resource).append(change)

    def of(self, informer: Informer[Any]) -> list[Change]:
        """What an informer's watch would tell."""
        return self.of_storage(storage(informer.resource))

    def of_storage(self, resource: str) -> list[Change]:
        return self._by_resource.setdefault(resource, [])


def _selector(text: str) -> Callable[[Mapping[str, str]], bool]:
    assert "=" not in text, "a feed knows the existence of one label only"
    return lambda labels: not text or text in labels
