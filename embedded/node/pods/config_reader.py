"""Reads the ConfigMaps and Secrets of pods from the API server.

One rule: the thread that runs pods never waits for the API server. The thread that runs pods asks for an object
repeatedly, and another thread reads each object once for all pods that ask. An object that is missing, or lacks a key,
is read again after a pause.
"""

import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

from embedded import config_sources
from embedded.config_sources import ConfigKey, ConfigObject, ConfigObjects
from kube import errors
from kube.api import Cluster

logger = logging.getLogger(__name__)

_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 10.0
"""The pause before a missing object is read again: it doubles while the object stays missing."""
_KEPT_SECONDS = 5.0
"""The time for which an answer is kept: contents of 1 MiB must not stay in memory."""


@dataclass(slots=True)
class _Answer:
    """The last answer about an object."""

    ticket: int
    """The ticket that was current when the request was sent."""
    value: ConfigObject
    at: float
    next_pause: float
    """The seconds until the object is read again if it is missing, or a key of it."""
    pause: float = 0.0
    """The seconds until the object is read again; 0 if nothing is missing."""


class ConfigReader:
    """A thread that reads ConfigMaps and Secrets."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._clock = clock
        self._ticket = 0
        self._answers: dict[ConfigKey, _Answer] = {}
        self._wanted: dict[ConfigKey, None] = {}
        """The objects to read, in the order in which they were asked for."""
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="config-reader")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the request that it sends."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    def ticket(self) -> int:
        """Return a number that stands for this moment: an answer for this number was requested after it."""
        with self._changed:
            self._ticket += 1
            return self._ticket

    def find(self, key: ConfigKey, ticket: int) -> ConfigObject | None:
        """Return an object as the API server showed it after a ticket was taken; None while it has not answered.

        An object that could not be read is read again after a pause. Until then, every call returns the same answer.
        """
        with self._changed:
            answer = self._answers.get(key)
            is_new = answer is not None and answer.ticket >= ticket
            if answer is None or not is_new or (answer.pause and self._clock() >= answer.at + answer.pause):
                self._wanted.setdefault(key)
                self._changed.notify()
            return answer.value if answer is not None and is_new else None

    def reject(self, key: ConfigKey, value: ConfigObject) -> None:
        """Read an object again after a pause, because the present answer lacks a key."""
        with self._changed:
            answer = self._answers.get(key)
            if answer is not None and answer.value is value:
                answer.pause = answer.next_pause

    def _run(self) -> None:
        while True:
            with self._changed:
                # Without an answer to forget, the thread waits for a question for ever.
                patience = _KEPT_SECONDS if self._answers else None
                self._changed.wait_for(lambda: self._wanted or self._stopping, patience)
                if self._stopping:
                    return
                self._forget()
                if not self._wanted:
                    continue
                key = next(iter(self._wanted))
                ticket = self._ticket
            value = self._read(key)
            with self._changed:
                before = self._answers.get(key)
                next_pause = (
                    min(2 * before.pause, _LONGEST_PAUSE_SECONDS) if before and before.pause else _PAUSE_SECONDS
                )
                pause = next_pause if value.problem else 0.0
                self._answers[key] = _Answer(ticket, value, self._clock(), next_pause, pause)
                self._wanted.pop(key, None)

    def _forget(self) -> None:
        now = self._clock()
        self._answers = {
            key: answer for key, answer in self._answers.items() if now < answer.at + _KEPT_SECONDS + 2 * answer.pause
        }

    def _read(self, key: ConfigKey) -> ConfigObject:
        try:
            return config_sources.read(key, self._cluster.get(key.resource, key.name, key.namespace))
        except errors.NotFound:
            return config_sources.absent(key)
        except errors.ClusterError as e:
            logger.warning("%s in namespace %s is not read yet: %s", key, key.namespace, e)
            return ConfigObject(problem=f"{key} cannot be read: {e}")
        except Exception as e:  # what is wrong with one object must not end the thread; the text has no contents
            logger.error("%s in namespace %s cannot be read: %s", key, key.namespace, type(e).__name__)
            return ConfigObject(problem=f"{key} cannot be read: its contents are malformed")


@dataclass(slots=True)
class _Step:
    ticket: int
    found: dict[ConfigKey, ConfigObject] = field(default_factory=dict)
    rejected: set[ConfigKey] = field(default_factory=set)
    """The objects that lacked a key, so that they are read again."""


class PodObjects:
    """The objects that one pod reads."""

    def __init__(self, reader: ConfigReader) -> None:
        self._reader = reader
        self._steps: dict[Hashable, _Step] = {}

    def gather(self, name: Hashable, keys: Iterable[ConfigKey]) -> ConfigObjects | None:
        """Return all objects that a step needs, as they were read after its first call; None while some are not read.

        An object that is missing counts as read, and it is read again, as an object that is rejected.
        """
        wanted = list(keys)
        if not wanted:
            return {}
        step = self._steps.get(name) or self._steps.setdefault(name, _Step(self._reader.ticket()))
        for key in wanted:
            if key not in step.found or step.found[key].problem or key in step.rejected:
                answer = self._reader.find(key, step.ticket)
                if answer is not None:
                    step.found[key] = answer
        return step.found if all(key in step.found for key in wanted) else None

    def reject(self, name: Hashable, key: ConfigKey) -> None:
        """Have an object of a step read again after a pause, because it lacks a key or is missing."""
        step = self._steps[name]
        step.rejected.add(key)
        self._reader.reject(key, step.found[key])

    def end(self, name: Hashable) -> None:
        """Forget the objects of a step that is done."""
        self._steps.pop(name, None)
