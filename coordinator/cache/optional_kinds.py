"""The kinds that other projects define: pod groups and queues of gang schedulers, and requests to recreate containers.

A kind that is served in several versions is followed in the first of these versions.

One rule: a kind that is not installed costs one request every LOOK_SECONDS and one line in the log. A kind that is
installed later is watched from then on, and jobs that wait for it are routed. No process has to be restarted.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from coordinator.cache import views
from crds.api_resources import ALPHA_RECREATE_REQUESTS, RECREATE_REQUESTS, Resource
from crds.keys import JobKey
from gang import backends, volcano
from gang.values import GangQueue
from kube import errors
from kube.api import Cluster, Manifest
from kube.informer import Informer
from kube.object_errors import ObjectErrors
from kube.process.turns import Turn, Turns

REQUESTS = (RECREATE_REQUESTS, ALPHA_RECREATE_REQUESTS)
"""The versions of requests to recreate containers, the preferred one first."""
KINDS = (*backends.KINDS, *REQUESTS)
"""The kinds of pod groups, and of requests to recreate containers."""
LOOK_SECONDS = 15.0
"""How often the API server is asked for kinds that are not installed."""
RETRY_SECONDS = 1.0
"""How soon the API server is asked again if the first request failed."""
MOST_CONDITIONS = 32
"""The most conditions that are read of an object of a foreign kind."""
log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ForeignView:
    """An object of a foreign kind that was created for a job."""

    job: JobKey | None
    state: tuple[object, ...]
    """The fields that a worker may wait for. A change that keeps the state equal needs no reconcile."""


def kind_name(resource: Resource) -> str:
    """Return the full name of a kind for messages, such as podgroups.scheduling.volcano.sh."""
    return f"{resource.plural}.{resource.group}"


class OptionalKinds(Generic[T]):
    """One informer for each of the optional kinds that the API server serves; any thread may read the informers."""

    def __init__(
        self,
        serves: Callable[[Resource], bool],
        kinds: Iterable[Resource],
        informer: Callable[[Resource], Informer[T]],
        on_found: Callable[[], None] = lambda: None,
        errors: ObjectErrors | None = None,
    ) -> None:
        self._serves = serves
        self._errors = errors or ObjectErrors()
        self.on_found = on_found
        """Called when a kind is served that was not served at first."""
        self._missing = list(kinds)
        self._informer = informer
        self._informers: dict[Resource, Informer[T]] = {}
        self._stopping, self._asked = threading.Event(), threading.Event()
        self._turns: Turns | None = None
        self._turn = Turn("")
        self._thread = threading.Thread(target=self._run, name="foreign-kinds")

    def start(self, turns: Turns | None = None) -> None:
        """Start a thread that asks the API server for the kinds and watches those that it serves, each kind in one of
        the loops in `turns`. Call it only once."""
        self._turns = turns
        if turns is not None and self._missing:
            self._turn = turns.loop(f"kinds/{self._missing[0].plural}")
        self._thread.start()

    def stop(self) -> None:
        """Stop all informers and the thread, and wait for them."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        for informer in self._informers.values():
            informer.stop()

    def wait_discovered(self, timeout: float) -> bool:
        """Wait until the kinds that the API server serves are known; return whether they are known."""
        return self._asked.wait(timeout)

    @property
    def served(self) -> frozenset[Resource]:
        """The kinds that the API server serves."""
        return frozenset(self._informers)

    @property
    def informers(self) -> tuple[Informer[T], ...]:
        """The informers of the kinds that the API server serves."""
        return tuple(self._informers.values())

    def discover(self) -> None:
        """Ask the API server for the missing kinds, and watch those that it serves now. Raises any ClusterError."""
        new_kinds = _first_versions(kind for kind in self._missing if self._serves(kind))
        for resource in new_kinds:
            informer = self._informer(resource)
            informer.start(self._turns)
            self._informers = {**self._informers, resource: informer}  # others may iterate over the old one
            self._missing = [kind for kind in self._missing if not kind.is_version_of(resource)]
            log.info("following %s", kind_name(resource))
        if self._missing and not self._asked.is_set():
            names = ", ".join(dict.fromkeys(map(kind_name, self._missing)))
            log.info("not installed: %s; asked again every %.0f s", names, LOOK_SECONDS)
        is_late = bool(new_kinds) and self._asked.is_set()
        self._asked.set()
        if is_late:
            self.on_found()

    def _run(self) -> None:
        with self._turn:
            while self._missing and not self._stopping.is_set():
                self._turn.mark()
                try:
                    self.discover()
                except errors.ClusterError as error:
                    log.debug("cannot ask which kinds there are: %s", error)
                except Exception as error:
                    self._errors.record("the question which kinds there are", error)
                pause = LOOK_SECONDS if self._asked.is_set() else RETRY_SECONDS
                self._turn.allow(pause)
                self._stopping.wait(pause)
        self._asked.set()

    def indexed(self, key: str) -> list[T]:
        """Return the objects, of all kinds, whose index key is `key`."""
        return [value for informer in self._informers.values() for value in informer.indexed(key)]


class GangQueueKinds(OptionalKinds[GangQueue]):
    """The queues of gang schedulers. An account that may not read these kinds continues without them."""

    def __init__(
        self,
        cluster: Cluster,
        kinds: Iterable[Resource],
        on_change: Callable[[GangQueue | None, GangQueue | None], None],
        errors: ObjectErrors,
    ) -> None:
        """`on_change` is called with a queue before and after its change, and with None when the kind is installed."""
        super().__init__(cluster.serves, kinds, self._queue_informer, lambda: on_change(None, None), errors)
        self._cluster, self._on_change = cluster, on_change
        self._is_refused = False

    @property
    def known(self) -> Mapping[str, GangQueue] | None:
        """The queues by name; None if they are not known."""
        informer = next((each for each in self.informers if each.synced), None)
        return None if informer is None else {queue.name: queue for queue in informer.values()}

    def _queue_informer(self, resource: Resource) -> Informer[GangQueue]:
        return Informer(
            self._cluster,
            resource,
            trim=volcano.read_queue,
            on_change=lambda before, after: None if before == after else self._on_change(before, after),
            on_failure=self._note_failure,
            errors=self._errors,
        )

    def _note_failure(self, error: errors.ClusterError) -> None:
        if isinstance(error, errors.Forbidden) and not self._is_refused:
            self._is_refused = True
            log.warning(
                "the queues of the gang scheduler do not limit picks, because this account may not read them: "
                "apply the role of the coordinator again (torchq rbac coordinator)"
            )


def _first_versions(served: Iterable[Resource]) -> list[Resource]:
    """Return the first version of each kind."""
    chosen: list[Resource] = []
    for resource in served:
        if not any(resource.is_version_of(other) for other in chosen):
            chosen.append(resource)
    return chosen


def foreign_view(manifest: Manifest) -> ForeignView:
    """Trim a pod group or a request to recreate containers; no reconcile depends on counts and times."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    listed = (status.get("conditions") or ())[:MOST_CONDITIONS]
    conditions = [condition for condition in listed if isinstance(condition, dict)]
    facts = tuple((condition.get("type"), condition.get("status"), condition.get("reason")) for condition in conditions)
    state = (status.get("phase"), "deletionTimestamp" in metadata, *facts)
    return ForeignView(views.owner(metadata["namespace"], metadata.get("labels") or {}), state)
