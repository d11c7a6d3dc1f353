"""Kinds that others define: pod groups of gang schedulers, requests to recreate containers, where they are installed.

One rule: a kind that is not there costs a question now and then and one line in the log; one that comes later is
followed from then on, and told to whoever has jobs that wait for it, without anybody starting anything again.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from crds.api_resources import RECREATE_REQUESTS, Resource
from gang import backends
from kube import errors
from kube.informer import Informer
from kube.object_errors import ObjectErrors

KINDS = (*backends.KINDS, RECREATE_REQUESTS)
"""All of them."""
LOOK_SECONDS = 15.0
"""How often kinds that are not there are asked for."""
RETRY_SECONDS = 1.0
"""How soon after a question that was not answered the first time."""
log = logging.getLogger(__name__)
T = TypeVar("T")


def name(resource: Resource) -> str:
    """As people name a kind: podgroups.scheduling.volcano.sh."""
    return f"{resource.plural}.{resource.group}"


class Foreign(Generic[T]):
    """One informer for each of some kinds that is served; readable from any thread."""

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
        """Called when a kind has come that was not there at first."""
        self._missing = list(kinds)
        self._informer = informer
        self._informers: dict[Resource, Informer[T]] = {}
        self._stopping, self._asked = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="foreign-kinds")

    def start(self) -> None:
        """Begin to ask and to follow. Once only."""
        self._thread.start()

    def stop(self) -> None:
        """End all informers and the thread, and wait for them."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        for informer in self._informers.values():
            informer.stop()

    def wait_asked(self, timeout: float) -> bool:
        """Wait until the server has said which of the kinds there are."""
        return self._asked.wait(timeout)

    @property
    def served(self) -> frozenset[Resource]:
        """The kinds that are there."""
        return frozenset(self._informers)

    @property
    def informers(self) -> tuple[Informer[T], ...]:
        """Of the kinds that are there."""
        return tuple(self._informers.values())

    def look(self) -> None:
        """Follow what is there and was not. Any ClusterError."""
        found = [each for each in self._missing if self._serves(each)]
        for resource in found:
            informer = self._informer(resource)
            informer.start()
            self._informers = {**self._informers, resource: informer}  # others may be walking through the old one
            self._missing.remove(resource)
            log.info("following %s", name(resource))
        if self._missing and not self._asked.is_set():
            names = ", ".join(dict.fromkeys(map(name, self._missing)))
            log.info("not installed: %s; asked again every %.0f s", names, LOOK_SECONDS)
        late = bool(found) and self._asked.is_set()
        self._asked.set()
        if late:
            self.on_found()

    def _run(self) -> None:
        while self._missing and not self._stopping.is_set():
            try:
                self.look()
            except errors.ClusterError as error:
                log.debug("cannot ask which kinds there are: %s", error)
            except Exception as error:
                self._errors.met("the question which kinds there are", error)
            self._stopping.wait(LOOK_SECONDS if self._asked.is_set() else RETRY_SECONDS)
        self._asked.set()

    def indexed(self, key: str) -> list[T]:
        """The values of every kind whose index is `key`."""
        return [value for informer in self._informers.values() for value in informer.indexed(key)]
