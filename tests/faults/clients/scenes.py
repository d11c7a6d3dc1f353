"""The scenes in which clients run: the code that exists before, the clients that come at the same time, and the jobs
that are deleted.

One rule: a run of a scene is a function of its seed and its faults.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

from coordinator.code.archive import Archive
from coordinator.code.config_map_store import ConfigMapStore
from coordinator.runs import launch, run
from coordinator.runs.request import IfExists
from coordinator.runs.run import PreparedRun
from crds.api_resources import TORCHJOBS
from crds.keys import JobKey
from kube import errors
from kube.api import Manifest
from tests.faults.api import Api, ApiClient
from tests.faults.clients.client import Client, Kind
from tests.faults.clients.code_observer import CodeObserver
from tests.faults.clients.collector import Collector
from tests.support.clock import Clock

NAMESPACE = "default"
MOST_STEPS = 2_000
Step = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Comer:
    """A client that runs the code under a name."""

    name: str
    if_exists: IfExists = "fail"


@dataclass(frozen=True, slots=True)
class Scene:
    """Jobs that exist, clients that come at the same time, and jobs that their owners delete during the run."""

    comers: tuple[Comer, ...]
    before: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()


SCENES = {
    "the code is new": Scene((Comer("new"),)),
    "the code is there": Scene((Comer("new"),), before=("old",)),
    "the first copy is full": Scene((Comer("new"),), before=("old", "older")),
    "a job with the same code is replaced": Scene((Comer("old", "replace"),), before=("old",)),
    "the last owner goes": Scene((Comer("new"),), before=("old",), deleted=("old",)),
    "all owners of a full copy go": Scene((Comer("new"),), before=("old", "older"), deleted=("old", "older")),
    "two clients come": Scene((Comer("new"), Comer("newer"))),
    "two clients come as the last owner goes": Scene((Comer("new"), Comer("newer")), before=("old",), deleted=("old",)),
    "clients come to the last place of a copy": Scene(
        (Comer("new"), Comer("newer"), Comer("newest")), before=("old",), deleted=("old",)
    ),
    "two clients replace the same job": Scene((Comer("old", "replace"), Comer("old", "replace")), before=("old",)),
    "two clients replace a job that does not exist": Scene((Comer("new", "replace"), Comer("new", "replace"))),
    "two clients attach to the same name": Scene((Comer("new", "attach"), Comer("new", "attach"))),
    "two clients take the same name": Scene((Comer("new"), Comer("new"))),
    "the new job is deleted": Scene((Comer("new"),), deleted=("new",)),
}


class Play:
    """One run of a scene."""

    def __init__(
        self, scene: Scene, prepared: PreparedRun, seed: int, faults: Mapping[tuple[int, int], Kind] | None = None
    ) -> None:
        """`faults` has the kinds of faults by the number of the client and the number of its call. With seed 0, all act
        in order.
        """
        assert prepared.archive is not None
        archive: Archive = prepared.archive
        self._time = Clock()
        self._random = random.Random(f"play {seed}") if seed else None
        self.api = Api(self._time)
        self.cluster = ApiClient(self.api)
        self.observer = CodeObserver(self.api, {archive.short: archive})
        self.collector = Collector(self.api)
        self._prepared = prepared
        self._running: Client | None = None
        self.wrong: list[str] = []
        self._before = [self._client(Comer(name), {}) for name in scene.before]
        by_client: list[dict[int, Kind]] = [{} for _ in scene.comers]
        for (number, call), kind in (faults or {}).items():
            by_client[number][call] = kind
        self.clients = [self._client(comer, found) for comer, found in zip(scene.comers, by_client, strict=True)]
        self._deletions = [partial(self._delete, name) for name in scene.deleted]

    def _client(self, comer: Comer, faults: dict[int, Kind]) -> Client:
        job = self._prepared.manifest
        named = {**job, "metadata": {**job["metadata"], "name": comer.name}}

        def work(cluster: Any) -> JobKey:
            store = ConfigMapStore(cluster, pause=cluster.pause)
            return run.start(cluster, replace(self._prepared, manifest=named, if_exists=comer.if_exists, store=store))

        return Client(comer.name, self.cluster, work, faults)

    def time(self) -> SimpleNamespace:
        """Return the module `time` as the clients see this module."""
        return SimpleNamespace(monotonic=self._time, time_ns=self._nanoseconds, sleep=self._sleep)

    def _nanoseconds(self) -> int:
        self._time.step(0.000_01)  # no two submissions have the same microsecond
        return int(self._time() * 1e9)

    def _sleep(self, seconds: float) -> None:
        self._time.step(20 * seconds)  # a few long rounds of waiting are as good as many short rounds
        assert self._running is not None
        self._running.pause(seconds)

    def _step(self, client: Client) -> None:
        self._running = client
        client.step()

    def _delete(self, name: str) -> None:
        """Delete a job, as its owner does."""
        try:
            self.cluster.delete(TORCHJOBS, name, NAMESPACE)
        except errors.NotFound:
            return

    def run(self) -> None:
        """Let clients, collector and owners act until all have ended, or something is wrong."""
        for client in self._before:
            while not client.done:
                self._step(client)
            assert client.result is not None, client.error
        for _ in range(MOST_STEPS):
            steps = list(self._steps())
            if not steps:
                self.wrong = list(self.observer.left(self.clients))
                return
            chosen = self._random.choice(steps) if self._random else steps[0]
            revision = self.api.revision
            chosen()
            self.wrong = list(self.observer.broken()) if self.api.revision != revision else []
            if self.wrong:
                return
        self.wrong = [f"not over after {MOST_STEPS} steps"]

    def jobs(self) -> list[Manifest]:
        """Return the jobs that exist."""
        return self.cluster.list(TORCHJOBS, NAMESPACE).items

    def _steps(self) -> Iterator[Step]:
        """Yield the steps that can happen next. The order of the steps is: the collector, the clients, the owners who
        delete jobs.
        """
        if not self.collector.done:
            yield self.collector.step
        yield from (partial(self._step, client) for client in self.clients if not client.done)
        if self._deletions:
            yield self._delete_next

    def _delete_next(self) -> None:
        self._deletions.pop(0)()


def play(
    scene: Scene, prepared: PreparedRun, seed: int = 0, faults: Mapping[tuple[int, int], Kind] | None = None
) -> Play:
    """Run a scene."""
    played = Play(scene, prepared, seed, faults)
    with mock.patch.object(launch, "time", played.time()):
        played.run()
    return played
