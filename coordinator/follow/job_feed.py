"""The changes of TorchJobs, for any number of handles.

One rule: one watch per namespace, and no polling. A connection that is lost is made again, and a watch that is too old
lists again (`kube.reflector`). A handle has a uid, so a later job of the same name never answers for it.
"""

import contextlib
import math
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Self

from coordinator.follow import job_objects
from crds.api_resources import TORCHJOBS
from crds.keys import JobKey
from kube import errors
from kube.api import Cluster, Listing, Manifest, WatchEvent
from kube.reflector import ListWatch, Reflector
from kube.settings import InformerSettings

SETTINGS = InformerSettings(backoff_cap=5.0, quiet=True)
"""A person waits for the news, so a lost connection is tried again every 5 s at least, and warnings of a log are for
nobody."""
STOP_SECONDS = 1.0
"""The longest wait for the thread of a watch that ends. A request in progress may take longer; nobody waits for it."""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_FATAL = (errors.Forbidden, errors.Unauthorized, errors.NotFound, errors.Misconfigured)
"""Errors that another attempt does not cure. Other errors end a feed only before its first list."""
News = tuple[JobKey, Manifest | None]
"""A job and its newest state; None if the job was deleted."""


class Inbox:
    """The unread states of some jobs. Watches write, one reader takes."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._news: dict[JobKey, Manifest | None] = {}
        self._closed = False
        self._error: errors.ClusterError | None = None

    def put(self, key: JobKey, item: Manifest | None) -> None:
        """Note the newest state of a job. Nothing follows a deletion."""
        with self._changed:
            if key not in self._news or self._news[key] is not None:
                self._news[key] = item
                self._changed.notify_all()

    def fail(self, error: errors.ClusterError) -> None:
        """Let the reader raise an error, after the states that came before it."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def close(self) -> None:
        """Let the reader end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def take(self, timeout: float | None = None) -> News | None:
        """Return a state that was not read yet. Return None after `timeout` seconds, or if the inbox is closed.

        Raise the error of a watch that cannot continue.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._news or self._closed or self._error, timeout)
            if self._closed:
                return None
            if self._news:
                key = next(iter(self._news))
                return key, self._news.pop(key)
            if self._error is not None:
                raise self._error
            return None


class JobFeed:
    """The jobs of one namespace, as its watch shows them; any number of threads may follow any number of jobs.

    The manifests have neither managed fields nor pod templates: a namespace may hold ten thousand jobs.
    """

    def __init__(self, cluster: Cluster, namespace: str, label_selector: str = "") -> None:
        """Prepare to follow the jobs of a namespace, or of all namespaces if the name is empty; only jobs with the
        given labels.
        """
        self._cluster = cluster
        self.namespace = namespace
        self.resync_at = math.inf
        self._jobs: dict[str, Manifest] = {}
        """The jobs by uid."""
        self._uids: dict[tuple[str, str], str] = {}
        """The uids of the present jobs by namespace and name."""
        self._observers: list[Inbox] = []
        """The inboxes that get every job."""
        self._readers: defaultdict[JobKey, list[Inbox]] = defaultdict(list)
        self._unseen: dict[JobKey, int] = {}
        """Followed jobs that exist and that the watch has not shown yet, with the number of lists begun by then."""
        self._lists = 0
        self._synced = False
        self._error: errors.ClusterError | None = None
        self._closed = False
        self._changed = threading.Condition(threading.RLock())
        source = ListWatch(cluster, TORCHJOBS, namespace, label_selector)
        self._reflector = Reflector(source, self, SETTINGS, time.monotonic, self._on_failure)
        self._started = False

    def changes(self, key: JobKey) -> "JobChanges":
        """Return the states of a job: the present one, then each change, newest first seen; None once it is deleted."""
        return JobChanges((self, [key]))

    def attach(self, inbox: Inbox, keys: Iterable[JobKey]) -> None:
        """Put the present state of each job into an inbox, and all later ones until `detach`.

        Waits for the first list. A job that the watch has not shown yet is read once. Raise any ClusterError.
        """
        self._wait_synced()
        for key in dict.fromkeys(keys):
            self._attach(inbox, key)

    def _attach(self, inbox: Inbox, key: JobKey) -> None:
        with self._changed:
            self._readers[key].append(inbox)
            lists, known = self._lists, self._jobs.get(key.uid)
            if self._error is not None:
                inbox.fail(self._error)
            if self._closed:
                inbox.close()
        if known is None:
            known = self._read(key)
        with self._changed:
            # The watch may have shown the job since, and newer.
            if known is not None and key.uid not in self._jobs and key not in self._unseen:
                self._unseen[key] = lists
            inbox.put(key, self._jobs.get(key.uid, known))

    def _read(self, key: JobKey) -> Manifest | None:
        with contextlib.suppress(errors.NotFound):
            return trim(job_objects.read(self._cluster, key))
        return None

    def detach(self, inbox: Inbox, keys: Iterable[JobKey]) -> None:
        """End the delivery to an inbox."""
        with self._changed:
            for key in dict.fromkeys(keys):
                readers = self._readers.get(key, [])
                if inbox in readers:
                    readers.remove(inbox)
                if not readers:
                    self._readers.pop(key, None)
                    self._unseen.pop(key, None)

    def find(self, name: str) -> Manifest | None:
        """Return the present job of a name, as the watch shows it. Raise any ClusterError."""
        self._wait_synced()
        with self._changed:
            return self._jobs.get(self._uids.get((self.namespace, name), ""))

    def all(self, inbox: Inbox) -> list[Manifest]:
        """Return all jobs, and put every later change of any of them into an inbox. Raise any ClusterError."""
        self._wait_synced()
        with self._changed:
            if inbox not in self._observers:
                self._observers.append(inbox)
            return list(self._jobs.values())

    @property
    def failed(self) -> bool:
        """Whether the feed has ended because of an error or `close`."""
        return self._error is not None or self._closed

    @property
    def behind(self) -> str:
        """Why the jobs may be behind, as a sentence; empty while the watch follows the API server."""
        return self._reflector.failing

    def close(self) -> None:
        """End the watch and every iterator of `changes`."""
        with self._changed:
            self._closed = True
            inboxes = self._inboxes()
            self._changed.notify_all()
        for inbox in inboxes:
            inbox.close()
        if self._started:
            self._reflector.stop(STOP_SECONDS)

    def __enter__(self) -> "JobFeed":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def replace(self, pages: Iterable[Listing]) -> str:
        """Take a whole list, from the reflector."""
        with self._changed:
            self._lists += 1
            begun = self._lists
        version, listed = "", dict[str, Manifest]()
        for page in pages:
            version = version or page.resource_version
            listed |= {item["metadata"]["uid"]: trim(item) for item in page.items}
        with self._changed:
            gone = [uid for uid in self._jobs if uid not in listed]
            unseen = [key for key, lists in self._unseen.items() if lists < begun and key.uid not in listed]
            changed = [item for uid, item in listed.items() if _version(self._jobs.get(uid)) != _version(item)]
            for uid in gone:
                self._forget(uid)
            for key in unseen:
                self._tell(key, None)
            for item in changed:
                self._keep(item)
            self._synced = True
            self._changed.notify_all()
        return version

    def apply(self, event: WatchEvent) -> None:
        """Take one event of the watch, from the reflector."""
        with self._changed:
            if event.kind == "DELETED":
                self._forget(event.object["metadata"]["uid"])
            elif event.kind != "BOOKMARK":
                self._keep(trim(event.object))

    def resync(self) -> None:
        """Do nothing: a feed has no resync."""

    def _keep(self, item: Manifest) -> None:
        key = JobKey.of(item)
        before = self._uids.get((key.namespace, key.name), key.uid)
        if before != key.uid:
            self._forget(before)
        self._jobs[key.uid] = item
        self._uids[key.namespace, key.name] = key.uid
        self._tell(key, item)

    def _forget(self, uid: str) -> None:
        item = self._jobs.pop(uid, None)
        if item is None:
            return
        key = JobKey.of(item)
        if self._uids.get((key.namespace, key.name)) == uid:
            del self._uids[key.namespace, key.name]
        self._tell(key, None)

    def _tell(self, key: JobKey, item: Manifest | None) -> None:
        self._unseen.pop(key, None)
        for inbox in (*self._readers.get(key, ()), *self._observers):
            inbox.put(key, item)

    def _on_failure(self, error: errors.ClusterError) -> None:
        with self._changed:
            if self._closed or (self._synced and not isinstance(error, _FATAL)):
                return
            self._error = self._error or error
            self._changed.notify_all()
            inboxes = self._inboxes()
        for inbox in inboxes:
            inbox.fail(error)
        self._reflector.stop()

    def _inboxes(self) -> list[Inbox]:
        return [*self._observers, *(inbox for readers in self._readers.values() for inbox in readers)]

    def _wait_synced(self) -> None:
        with self._changed:
            if not self._started and not self._closed:
                self._started = True
                self._reflector.start()
            self._changed.wait_for(lambda: self._synced or self._error or self._closed)
            if self._error is not None:
                raise self._error


class Subscription:
    """The news of some jobs, in one inbox. `close` ends the wait for them, from any thread."""

    def __init__(self, *followed: tuple[JobFeed, list[JobKey]]) -> None:
        """Begin to follow jobs, each by the feed of its namespace. Raise any ClusterError."""
        self._inbox = Inbox()
        self._followed = followed
        for feed, keys in followed:
            feed.attach(self._inbox, keys)

    def close(self) -> None:
        """End the iteration."""
        self._inbox.close()
        for feed, keys in self._followed:
            feed.detach(self._inbox, keys)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class JobChanges(Subscription, Iterator[Manifest | None]):
    """The states of one job, as an iterator."""

    _deleted = False

    def __next__(self) -> Manifest | None:
        """Wait for the next state and return it; None says that the job was deleted, and is the last state."""
        news = None if self._deleted else self._inbox.take()
        if news is None:
            self.close()
            raise StopIteration
        self._deleted = news[1] is None
        return news[1]


class JobFeeds:
    """The feeds of a process: one for each namespace that a caller has requested."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._feeds: dict[str, JobFeed] = {}
        self._lock = threading.Lock()

    def of(self, namespace: str) -> JobFeed:
        """Return the feed of a namespace; a new feed after a failure."""
        with self._lock:
            feed = self._feeds.get(namespace)
            if feed is None or feed.failed:
                feed = self._feeds[namespace] = JobFeed(self._cluster, namespace)
            return feed

    def close(self) -> None:
        """End all feeds."""
        with self._lock:
            feeds = list(self._feeds.values())
            self._feeds.clear()
        for feed in feeds:
            feed.close()

    def __enter__(self) -> "JobFeeds":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def trim(item: Manifest) -> Manifest:
    """Return a job without its managed fields and pod templates."""
    metadata = {name: value for name, value in item["metadata"].items() if name != "managedFields"}
    notes = {name: text for name, text in (metadata.get("annotations") or {}).items() if name != LAST_APPLIED}
    spec = item.get("spec") or {}
    tasks = {name: {**(task or {})} for name, task in (spec.get("torchTaskSpecs") or {}).items()}
    for task in tasks.values():
        task.pop("template", None)
    return {**item, "metadata": {**metadata, "annotations": notes}, "spec": {**spec, "torchTaskSpecs": tasks}}


def _version(item: Manifest | None) -> str:
    return "" if item is None else str(item["metadata"]["resourceVersion"])
