"""The thread that reads ConfigMaps and Secrets for pods: one request serves all pods that wait, and is repeated after a
pause.
"""

import threading
from collections.abc import Iterator
from typing import cast

import pytest

from crds.api_resources import CONFIG_MAPS, Resource
from embedded import config_sources
from embedded.config_sources import ConfigKey, ConfigObject
from embedded.node.pods.config_reader import ConfigReader, PodObjects
from kube import errors
from kube.api import Cluster, Manifest
from tests.support.clock import Clock
from tests.support.waiting import until

KEY = ConfigKey(CONFIG_MAPS, "ns", "m")


class Server:
    """An API server with ConfigMaps. The server counts requests, and a test can stop its answers."""

    def __init__(self) -> None:
        self.maps: dict[str, Manifest] = {}
        self.requests: list[str] = []
        self.answering = threading.Event()
        self.answering.set()
        self.error: Exception | None = None

    def get(self, resource: Resource, name: str, namespace: str = "") -> Manifest:
        self.requests.append(f"{resource.plural}/{namespace}/{name}")
        self.answering.wait()
        if self.error:
            raise self.error
        if name not in self.maps:
            raise errors.NotFound(name)
        return self.maps[name]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reader(server: Server, clock: Clock) -> Iterator[ConfigReader]:
    reading = ConfigReader(cast(Cluster, server), clock)
    reading.start()
    yield reading
    server.answering.set()
    reading.stop()


def test_pods_that_ask_together_share_one_request(reader: ConfigReader, server: Server) -> None:
    server.maps["m"] = {"data": {"a": "1"}}
    server.answering.clear()
    assert reader.find(ConfigKey(CONFIG_MAPS, "ns", "other"), 0) is None
    until(lambda: server.requests == ["configmaps/ns/other"])
    pods = [PodObjects(reader) for _ in range(50)]
    assert [pod.gather("volumes", [KEY]) for pod in pods] == [None] * 50
    server.answering.set()
    found = until(lambda: [pod.gather("volumes", [KEY]) for pod in pods], all)
    assert found == [{KEY: ConfigObject({"a": b"1"})}] * 50
    assert server.requests == ["configmaps/ns/other", "configmaps/ns/m"]


def test_a_step_takes_no_answer_from_before_its_begin(reader: ConfigReader, server: Server) -> None:
    server.maps["m"] = {"data": {"a": "old"}}
    pod = PodObjects(reader)
    until(lambda: pod.gather("first", [KEY]))
    server.maps["m"] = {"data": {"a": "new"}}
    assert until(lambda: pod.gather("second", [KEY])) == {KEY: ConfigObject({"a": b"new"})}


@pytest.mark.parametrize("missing", ["object", "key"])
def test_what_is_missing_is_read_again_after_a_growing_pause(
    reader: ConfigReader, server: Server, clock: Clock, missing: str
) -> None:
    pod = PodObjects(reader)
    if missing == "key":
        server.maps["m"] = {"data": {"other": "1"}}
    before = ConfigObject({"other": b"1"}) if missing == "key" else config_sources.absent(KEY)
    assert until(lambda: pod.gather("volumes", [KEY])) == {KEY: before}

    def seconds_to_next() -> float:
        """Advance the clock until the next request, and return by how many seconds."""
        begin, count = clock.now, len(server.requests)

        def look() -> int:
            clock.step(0.5)
            pod.gather("volumes", [KEY])
            pod.reject("volumes", KEY)
            return len(server.requests)

        until(look, lambda seen: seen > count)
        return clock.now - begin

    for pause in (1.0, 2.0, 4.0, 8.0, 10.0, 10.0):
        assert seconds_to_next() >= pause
    server.maps["m"] = {"data": {"a": "1"}}
    seconds_to_next()
    after = {KEY: ConfigObject({"a": b"1"})}
    assert until(lambda: pod.gather("volumes", [KEY]), lambda found: found == after)


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (errors.Unreachable("no answer"), 'configmap "m" cannot be read: no answer'),
        (RuntimeError("hush"), 'configmap "m" cannot be read: its contents are malformed'),
    ],
)
def test_an_object_that_cannot_be_read_is_no_missing_one(
    reader: ConfigReader, server: Server, error: Exception, problem: str
) -> None:
    server.error = error
    pod = PodObjects(reader)
    assert until(lambda: pod.gather("volumes", [KEY])) == {KEY: ConfigObject(problem=problem)}
