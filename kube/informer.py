"""A local, always current copy of one resource: list, then watch, resumed for as long as the server remembers.

One rule: nothing an API server or a callback does ends the informer or makes it run hot; every failure costs a wait
that grows, and only progress shortens it.
"""

import logging
import math
import random
import threading
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Generic, TypeVar

from crds import integers
from crds.api_resources import Resource
from kube import errors, retries
from kube.api import Cluster, Manifest, Watch, WatchEvent
from kube.cache import Cache, Change, Entry, Key
from kube.object_errors import ObjectErrors
from kube.pace import Round, failures_after
from kube.settings import InformerSettings

logger = logging.getLogger(__name__)

T = TypeVar("T")

_PASSING = (errors.Unreachable, errors.TooManyRequests, errors.Unauthorized, errors.Forbidden)
"""Errors that say nothing against our resourceVersion: the watch is resumed from it."""


class _Stopped(Exception):
    """`stop` was called in the middle of a list."""


@dataclass(eq=False)
class Informer(Generic[T]):
    """Keeps the trimmed values of one resource; readable from any thread, written by one of its own."""

    cluster: Cluster
    resource: Resource
    _: KW_ONLY
    trim: Callable[[Manifest], T]
    """What is kept of an object. Everything else of it is forgotten."""
    on_change: Callable[[T | None, T | None], None] | None = None
    """Called with the value before and after each change, in order, in the informer's thread. None: no such object.

    What it raises is logged. After a list it is called for the differences only. A name that came to be another
    object's (another uid) is told as a deletion and an addition.
    """
    index: Callable[[T], str | None] | None = None
    """The key under which `indexed` finds a value; None for not at all."""
    namespace: str = ""
    label_selector: str = ""
    on_synced: Callable[[], None] | None = None
    """Called once, after the first list and its changes."""
    on_resync: Callable[[list[T]], None] | None = None
    """Called with all values every `settings.resync_seconds`, in the informer's thread."""
    settings: InformerSettings = field(default_factory=InformerSettings)
    clock: Callable[[], float] = time.monotonic
    errors: ObjectErrors = field(default_factory=ObjectErrors)
    """Objects that `trim` or `index` cannot read, and callbacks that failed."""
    failing: str = field(default="", init=False)
    """Why the cache may be behind, in a sentence; empty while all is well."""

    def __post_init__(self) -> None:
        self._cache: Cache[T] = Cache()
        self._version: str | None = None
        self._unread: set[Key] = set()
        """Objects that `trim` or `index` could not read."""
        self._synced = threading.Event()
        self._stopping = threading.Event()
        self._changes = 0
        self._watch: Watch | None = None
        self._watch_began = self._watch_asked = 0.0
        self._handover = threading.Lock()
        self._resync_at = self.clock() + (self.settings.resync_seconds or math.inf)
        self._thread = threading.Thread(target=self._run, name=f"informer-{self.resource.plural}")

    def start(self) -> None:
        """Begin to list and watch. Once only."""
        self._thread.start()

    def stop(self) -> None:
        """End the watch and the thread, and wait for it: at most one callback, or one unanswered request, long."""
        self._stopping.set()
        with self._handover:
            if self._watch is not None:
                self._watch.close()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> "Informer[T]":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def synced(self) -> bool:
        """Whether the first list is in and its changes have been told."""
        return self._synced.is_set()

    def wait_synced(self, timeout: float) -> bool:
        """Wait for that, `timeout` seconds at most."""
        return self._synced.wait(timeout)

    @property
    def resource_version(self) -> int:
        """The newest version seen, in objects and bookmarks; 0 before the first, or if the server's are not numbers."""
        return self._cache.version

    def wait_for(self, resource_version: int, timeout: float) -> bool:
        """Wait until the cache has reached a version, say that of a write of ours; False after `timeout` seconds."""
        return self._cache.wait_for(resource_version, timeout)

    def get(self, namespace: str, name: str) -> T | None:
        """One value (namespace empty for cluster-scoped objects); None if there is no such object."""
        return self._cache.get((namespace, name))

    def values(self) -> list[T]:
        """All values."""
        return self._cache.values()

    def indexed(self, key: str) -> list[T]:
        """The values whose index is `key`, at the cost of as many."""
        return self._cache.indexed(key)

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            failures = failures_after(failures, self._round(), self.settings.healthy_seconds)
            if failures:
                self._stopping.wait(self._backoff(failures))
            self._resync_if_due()

    def _backoff(self, failures: int) -> float:
        settings = self.settings
        return retries.backoff(settings.backoff_base, settings.backoff_cap, attempt=failures, jitter=random.random())

    def _round(self) -> Round:
        """List if need be, watch until the watch ends, and say how it went."""
        self._changes = 0
        self._watch_asked = 0.0
        try:
            if self._version is None:
                self._version = self._list()
            self._follow(self._version)
        except errors.ClusterError as e:
            self._fail(str(e))
            if not isinstance(e, _PASSING):
                # Not only Expired: a server restored from a backup may refuse our version for other reasons.
                self._version = None
            return self._ended(failed=True)
        except _Stopped:
            return self._ended(failed=False)
        except Exception as e:
            logger.exception("the informer of %s lists again after an unforeseen error", self.resource.plural)
            self._fail(f"{type(e).__name__}: {e}")
            self._version = None
            return self._ended(failed=True)
        return self._ended(failed=False)

    def _ended(self, *, failed: bool) -> Round:
        if not self._watch_asked:
            return Round(failed=failed)
        return Round(self.clock() - self._watch_began, self._watch_asked, self._changes, failed)

    def _fail(self, why: str) -> None:
        told, self.failing = self.failing, why
        if why != told and not self._stopping.is_set():
            logger.warning("the cache of %s may be behind: %s", self.resource.plural, why)

    def _list(self) -> str:
        """Take the whole list, trimming page by page; return the version to watch from."""
        entries: dict[Key, Entry[T]] = {}
        version, before = "", set(self._unread)
        for page in self.cluster.pages(self.resource, self.namespace, label_selector=self.label_selector):
            if self._stopping.is_set():
                raise _Stopped
            version = version or page.resource_version
            for item in page.items:
                before.discard(_key(item))
                if (kept := self._keep(item)) is not None:
                    entries[kept[0]] = kept[1]
        for key in before:
            self._read(key)
        self._tell(self._cache.replace(entries, _number(version)))
        if not self._synced.is_set():
            self._synced.set()
            self._call(self.on_synced)
        return version

    def _follow(self, version: str) -> None:
        """Take every event of one watch."""
        seconds = self._watch_seconds()
        self._watch_began, self._watch_asked = self.clock(), float(seconds)
        watch = self.cluster.watch(
            self.resource,
            self.namespace,
            resource_version=version,
            label_selector=self.label_selector,
            timeout_seconds=seconds,
        )
        self._hold(watch)
        self.failing = ""
        try:
            for event in watch:
                self._take(event)
                self._resync_if_due()
        finally:
            self._hold(None)
            watch.close()

    def _hold(self, watch: Watch | None) -> None:
        """Show the open watch to `stop`, which may have come before it was open."""
        with self._handover:
            self._watch = watch
            if watch is not None and self._stopping.is_set():
                watch.close()

    def _take(self, event: WatchEvent) -> None:
        version = event.object["metadata"]["resourceVersion"]
        if event.kind == "BOOKMARK":
            self._cache.advance(_number(version))
        else:
            self._changes += 1
            self._tell(self._apply(event, _number(version)))
        self._version = version

    def _apply(self, event: WatchEvent, version: int) -> list[Change[T]]:
        if event.kind == "DELETED":
            key = _key(event.object)
            self._read(key)
            return self._cache.remove(key, version)
        kept = self._keep(event.object)
        if kept is None:
            self._cache.advance(version)
            return []
        return self._cache.put(*kept, version)

    def _keep(self, manifest: Manifest) -> tuple[Key, Entry[T]] | None:
        """What is kept of an object; None if `trim` or `index` cannot make sense of it: what was known of it stays."""
        key = _key(manifest)
        try:
            value = self.trim(manifest)
            group = self.index(value) if self.index else None
        except Exception as error:
            self.errors.met(self._subject(key), error)
            self._unread.add(key)
            return None
        self._read(key)
        return key, Entry(manifest["metadata"].get("uid", ""), value, group)

    def _read(self, key: Key) -> None:
        """The object can be read now, or is gone."""
        if key in self._unread:
            self._unread.discard(key)
            self.errors.over(self._subject(key))

    def _subject(self, key: Key) -> str:
        """An object's name for people."""
        return f"{self.resource.kind} {'/'.join(filter(None, key))}"

    def _tell(self, changes: list[Change[T]]) -> None:
        for before, after in changes:
            self._call(self.on_change, before, after)

    def _call(self, callback: Callable[..., None] | None, *arguments: object) -> None:
        if callback is None:
            return
        try:
            callback(*arguments)
        except Exception as error:
            self.errors.met(f"a change of the {self.resource.plural}", error)

    def _watch_seconds(self) -> int:
        """How long to watch: until the next resync at most, since a silent watch returns for nothing else."""
        return max(1, math.ceil(min(self.settings.watch_seconds, self._resync_at - self.clock())))

    def _resync_if_due(self) -> None:
        if self.clock() < self._resync_at or self._stopping.is_set():
            return
        self._resync_at = self.clock() + self.settings.resync_seconds
        if self.on_resync is not None:
            self._call(self.on_resync, self.values())


def _key(manifest: Manifest) -> Key:
    metadata = manifest["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _number(version: str) -> int:
    return integers.bounded(version, 0)
