"""Lists and watches one resource for as long as its process runs; client-go calls this a reflector.

One rule: no failure of an API server ends the reflector or makes it run hot. Every failure costs a wait that grows, and
only progress shortens the wait.
"""

import logging
import math
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from crds.api_resources import Resource
from kube import errors, retries
from kube.api import Cluster, Listing, Watch, WatchEvent
from kube.process.turns import Turn, Turns
from kube.retries import WatchOutcome
from kube.settings import InformerSettings

logger = logging.getLogger(__name__)

_KEEP_VERSION = (errors.Unreachable, errors.TooManyRequests, errors.Unauthorized, errors.Forbidden)
"""Errors that do not put the resourceVersion in doubt: the next watch resumes from it."""


class _Stopped(Exception):
    """`stop` was called in the middle of a list."""


class EventSink(Protocol):
    """The receiver of the objects that a reflector reads. The reflector calls it from its own thread only."""

    resync_at: float
    """The time, by the reflector's clock, from which `resync` is due."""

    def replace(self, pages: Iterable[Listing]) -> str:
        """Take a whole list and return its resourceVersion."""

    def apply(self, event: WatchEvent) -> None:
        """Take one event of a watch."""

    def resync(self) -> None:
        """Handle all objects again and set the next `resync_at`."""


@dataclass(frozen=True, slots=True)
class ListWatch:
    """The objects to read: the objects of one resource, in one namespace or in all namespaces, that a label selector
    selects.
    """

    cluster: Cluster
    resource: Resource
    namespace: str = ""
    label_selector: str = ""

    def pages(self) -> Iterator[Listing]:
        """List the objects page by page."""
        return self.cluster.pages(self.resource, self.namespace, label_selector=self.label_selector)

    def watch(self, version: str, seconds: int) -> Watch:
        """Watch the objects from a resourceVersion on."""
        return self.cluster.watch(
            self.resource,
            self.namespace,
            resource_version=version,
            label_selector=self.label_selector,
            timeout_seconds=seconds,
        )


class Reflector:
    """Reads one resource into a sink, in a thread of its own."""

    def __init__(
        self,
        source: ListWatch,
        sink: EventSink,
        settings: InformerSettings,
        clock: Callable[[], float],
        on_failure: Callable[[errors.ClusterError], None] = lambda _: None,
    ) -> None:
        """Prepare to read. `on_failure` is called with each error of the API server, in the reflector's thread.

        The thread does not keep its process alive: a process that is to end in order calls `stop`.
        """
        self._source = source
        self._on_failure = on_failure
        self._sink = sink
        self._settings = settings
        self._clock = clock
        self.failing = ""
        """The reason why the sink may be behind, as a sentence; empty while the reflector follows the server."""
        self.restarts = 0
        """How often a list or a watch has ended with an error and began again."""
        self._version: str | None = None
        self._objects = 0
        """The events of the present watch that carried an object."""
        self._watch: Watch | None = None
        self._watch_lock = threading.Lock()
        self._watch_began = self._watch_planned = 0.0
        self._stopping = threading.Event()
        self._turn = Turn("")
        self._thread = threading.Thread(target=self._run, name=f"informer-{source.resource.plural}", daemon=True)

    def start(self, turns: Turns | None = None) -> None:
        """Begin to list and watch, as one of the loops in `turns`. The method may be called only once."""
        if turns is not None:
            resource = self._source.resource
            self._turn = turns.loop(f"watch/{resource.plural}" + (f".{resource.group}" if resource.group else ""))
        self._thread.start()

    def stop(self, timeout: float | None = None) -> None:
        """End the watch and the thread. Wait until the thread has finished its present callback or request, at most
        `timeout` seconds."""
        self._stopping.set()
        with self._watch_lock:
            if self._watch is not None:
                self._watch.close()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _run(self) -> None:
        failures = 0
        with self._turn:
            while not self._stopping.is_set():
                failures = retries.failures_after(failures, self._list_and_watch(), self._settings.healthy_seconds)
                self._turn.mark()
                if failures:
                    with self._turn.waiting(self.failing or "the API server"):
                        self._stopping.wait(self._backoff(failures))
                self._resync_if_due()

    def _backoff(self, failures: int) -> float:
        settings = self._settings
        return retries.backoff(settings.backoff_base, settings.backoff_cap, attempt=failures, jitter=random.random())

    def _list_and_watch(self) -> WatchOutcome:
        """List if there is no resourceVersion to resume from, watch until the watch ends, and return the outcome."""
        self._objects = 0
        self._watch_planned = 0.0
        try:
            if self._version is None:
                self._version = self._sink.replace(self._pages())
            self._follow(self._version)
        except errors.ClusterError as e:
            self._fail(str(e))
            if not isinstance(e, _KEEP_VERSION):
                # Expired is not the only reason for a new list: a server restored from a backup may refuse the version
                # for others.
                self._version = None
            if not self._stopping.is_set():
                self._on_failure(e)
            return self._outcome(failed=True)
        except _Stopped:
            return self._outcome(failed=False)
        except Exception as e:
            logger.exception("the informer of %s lists again after an unforeseen error", self._source.resource.plural)
            self._fail(f"{type(e).__name__}: {e}")
            self._version = None
            return self._outcome(failed=True)
        return self._outcome(failed=False)

    def _outcome(self, *, failed: bool) -> WatchOutcome:
        if not self._watch_planned:
            return WatchOutcome(failed=failed)
        return WatchOutcome(self._clock() - self._watch_began, self._watch_planned, self._objects, failed)

    def _fail(self, reason: str) -> None:
        self.restarts += not self._stopping.is_set()
        previous, self.failing = self.failing, reason
        if reason != previous and not self._stopping.is_set():
            level = logging.DEBUG if self._settings.quiet else logging.WARNING
            logger.log(level, "the cache of %s may be behind: %s", self._source.resource.plural, reason)

    def _pages(self) -> Iterator[Listing]:
        for page in self._source.pages():
            if self._stopping.is_set():
                raise _Stopped
            self._turn.mark()
            yield page

    def _follow(self, version: str) -> None:
        """Hand every event of one watch to the sink."""
        # Until the next resync at most, since a silent watch does not return earlier.
        seconds = max(1, math.ceil(min(self._settings.watch_seconds, self._sink.resync_at - self._clock())))
        self._watch_began, self._watch_planned = self._clock(), float(seconds)
        watch = self._source.watch(version, seconds)
        self._publish_watch(watch)
        self.failing = ""
        try:
            for event in watch:
                self._turn.mark()
                if event.kind != "BOOKMARK":
                    self._objects += 1
                self._sink.apply(event)
                self._version = event.object["metadata"]["resourceVersion"]
                self._resync_if_due()
        finally:
            self._publish_watch(None)
            watch.close()

    def _publish_watch(self, watch: Watch | None) -> None:
        """Let `stop` close the watch. A watch that opens after `stop` was called is closed at once."""
        with self._watch_lock:
            self._watch = watch
            if watch is not None and self._stopping.is_set():
                watch.close()

    def _resync_if_due(self) -> None:
        if self._clock() >= self._sink.resync_at and not self._stopping.is_set():
            self._sink.resync()
