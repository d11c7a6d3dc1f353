"""A local, always current copy of one resource, resumed for as long as the server remembers.

One rule: no exception of a callback ends the informer. An error about one object delays only that object.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field
from typing import Generic, TypeVar

from crds import integers
from crds.api_resources import Resource
from kube.api import Cluster, Listing, Manifest, WatchEvent
from kube.cache import Cache, CacheEntry, Change, Key
from kube.errors import ClusterError
from kube.object_errors import ObjectErrors
from kube.process.turns import Turns
from kube.reflector import ListWatch, Reflector
from kube.settings import InformerSettings

T = TypeVar("T")


@dataclass(eq=False)
class Informer(Generic[T]):
    """Keeps the trimmed values of one resource. Any thread may read the values; only the informer's own thread
    writes."""

    cluster: Cluster
    resource: Resource
    _: KW_ONLY
    trim: Callable[[Manifest], T]
    """Returns the part of an object to keep. The cache forgets everything else."""
    remember: Callable[[T, T], T] | None = None
    """Returns the newest value of a name with what its value before has shown. Without it, each value stands alone."""
    on_change: Callable[[T | None, T | None], None] | None = None
    """Called with the value before and after each change (None for no object), in order, in the informer's thread.

    An exception that it raises is logged. After a list it is called for the differences only. If a name comes to belong
    to another object (another uid), it is called for a deletion and for an addition.
    """
    index: Callable[[T], str | None] | None = None
    """Returns the key under which `indexed` finds a value; None keeps the value out of the index."""
    namespace: str = ""
    label_selector: str = ""
    on_synced: Callable[[], None] | None = None
    """Called once, after the first list and its changes."""
    on_resync: Callable[[list[T]], None] | None = None
    """Called with all values every `settings.resync_seconds`, in the informer's thread."""
    on_failure: Callable[[ClusterError], None] = lambda _: None
    """Called with each error of the API server, in the informer's thread."""
    settings: InformerSettings = field(default_factory=InformerSettings)
    clock: Callable[[], float] = time.monotonic
    errors: ObjectErrors = field(default_factory=ObjectErrors)
    """Objects that `trim` or `index` cannot read, and callbacks that failed."""

    def __post_init__(self) -> None:
        self._cache: Cache[T] = Cache()
        self._synced = threading.Event()
        source = ListWatch(self.cluster, self.resource, self.namespace, self.label_selector)
        self._writer = _CacheWriter(self, self._cache, self._synced)
        self._reflector = Reflector(source, self._writer, self.settings, self.clock, self.on_failure)

    def start(self, turns: Turns | None = None) -> None:
        """Begin to list and watch, as one of the loops in `turns`. The method may be called only once."""
        self._reflector.start(turns)

    def stop(self, timeout: float | None = None) -> None:
        """End the watch and the thread. Wait until the thread has finished its present callback or request, at most
        `timeout` seconds."""
        self._reflector.stop(timeout)

    def __enter__(self) -> "Informer[T]":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def failing(self) -> str:
        """The reason why the cache may be behind, as a sentence; empty while the informer follows the server."""
        return self._reflector.failing

    @property
    def restarts(self) -> int:
        """How often a list or a watch has ended with an error and began again."""
        return self._reflector.restarts

    @property
    def synced(self) -> bool:
        """Whether the first list is in the cache and `on_change` was called for its objects."""
        return self._synced.is_set()

    def wait_synced(self, timeout: float) -> bool:
        """Wait until `synced` is true, `timeout` seconds at most; return whether `synced` is true."""
        return self._synced.wait(timeout)

    @property
    def resource_version(self) -> int:
        """The newest version that was read, in objects and bookmarks; 0 before the first read, or if it is not a
        number.
        """
        return self._cache.version

    @property
    def told_version(self) -> int:
        """The version up to which `on_change` was called for every change; 0 before the first list is over."""
        return self._writer.told_version

    @property
    def is_listing(self) -> bool:
        """Whether the changes that `on_change` is called for come from a list: nobody has seen when they happened."""
        return self._writer.is_listing

    @property
    def lists(self) -> int:
        """The number of lists for whose changes `on_change` was called. The watch did not go on between two lists."""
        return self._writer.lists

    @property
    def breaks(self) -> int:
        """How often the watch has begun again since the last list: what it tells then may have happened long ago."""
        return self._reflector.restarts - self._writer.restarts_before_list

    def wait_for(self, resource_version: int, timeout: float) -> bool:
        """Wait until the cache has a version, such as the version of the caller's own write; return False after
        `timeout` seconds.
        """
        return self._cache.wait_for(resource_version, timeout)

    def get(self, namespace: str, name: str) -> T | None:
        """Return one value (namespace empty for cluster-scoped objects); None if there is no such object."""
        return self._cache.get((namespace, name))

    def values(self) -> list[T]:
        """Return all values."""
        return self._cache.values()

    def indexed(self, key: str) -> list[T]:
        """Return the values whose index is `key`. The cost grows with their number, not with the cache."""
        return self._cache.indexed(key)


class _CacheWriter(Generic[T]):
    """Writes the objects that a reflector reads into an informer's cache, and calls the informer's callbacks."""

    def __init__(self, informer: Informer[T], cache: Cache[T], synced: threading.Event) -> None:
        self._informer = informer
        self._cache = cache
        self._synced = synced
        self._errors = informer.errors
        self._unreadable: set[Key] = set()
        """Objects that `trim` or `index` could not read."""
        self._period = informer.settings.resync_seconds or math.inf
        self.resync_at = informer.clock() + self._period
        self.told_version = self.lists = self.restarts_before_list = 0
        self.is_listing = False

    def replace(self, pages: Iterable[Listing]) -> str:
        """Put a whole list into the cache, page by page; return the version to watch from."""
        entries: dict[Key, CacheEntry[T]] = {}
        version, absent = "", set(self._unreadable)
        for page in pages:
            version = version or page.resource_version
            for item in page.items:
                absent.discard(_key(item))
                if (entry := self._trim(item)) is not None:
                    entries[entry[0]] = entry[1]
        for key in absent:
            self._clear_error(key)
        self.is_listing = True
        self._notify(self._cache.replace(entries, _number(version)))
        self.is_listing, self.told_version = False, _number(version)
        self.lists += 1
        self.restarts_before_list = self._informer.restarts
        if not self._synced.is_set():
            self._synced.set()
            self._call(self._informer.on_synced)
        return version

    def apply(self, event: WatchEvent) -> None:
        """Apply one event to the cache. A bookmark only advances the version."""
        version = _number(event.object["metadata"]["resourceVersion"])
        if event.kind == "BOOKMARK":
            self._cache.advance(version)
        elif event.kind == "DELETED":
            key = _key(event.object)
            self._clear_error(key)
            self._notify(self._cache.remove(key, version))
        elif (entry := self._trim(event.object)) is None:
            self._cache.advance(version)
        else:
            self._notify(self._cache.set(*entry, version))
        self.told_version = version

    def resync(self) -> None:
        """Call `on_resync` with all values."""
        self.resync_at = self._informer.clock() + self._period
        if self._informer.on_resync is not None:
            self._call(self._informer.on_resync, self._cache.values())

    def _trim(self, manifest: Manifest) -> tuple[Key, CacheEntry[T]] | None:
        """Return an object's key and cache entry; None if `trim` or `index` fails: the cache keeps the old value."""
        key, informer = _key(manifest), self._informer
        try:
            value = informer.trim(manifest)
            if informer.remember is not None and (before := self._cache.get(key)) is not None:
                value = informer.remember(before, value)
            group = informer.index(value) if informer.index else None
        except Exception as error:
            self._errors.record(self._subject(key), error)
            self._unreadable.add(key)
            return None
        self._clear_error(key)
        return key, CacheEntry(manifest["metadata"].get("uid", ""), value, group)

    def _clear_error(self, key: Key) -> None:
        """Forget the error of an object that can be read again or is deleted."""
        if key in self._unreadable:
            self._unreadable.discard(key)
            self._errors.clear(self._subject(key))

    def _subject(self, key: Key) -> str:
        """Return an object's name for people."""
        return f"{self._informer.resource.kind} {'/'.join(filter(None, key))}"

    def _notify(self, changes: list[Change[T]]) -> None:
        for before, after in changes:
            self._call(self._informer.on_change, before, after)

    def _call(self, callback: Callable[..., None] | None, *arguments: object) -> None:
        if callback is None:
            return
        try:
            callback(*arguments)
        except Exception as error:
            self._errors.record(f"a change of the {self._informer.resource.plural}", error)


def _key(manifest: Manifest) -> Key:
    metadata = manifest["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _number(version: str) -> int:
    return integers.parse(version, 0)
