"""The clock of this machine, compared with the clock of the API server."""

import time

from crds.api_resources import PODS
from kube.client import KubernetesCluster
from kube.process.server_time import ServerTime
from tests.support.clock import Clock

NOON = "Tue, 14 Nov 2023 12:00:00 GMT"
NOON_SECONDS = 1_699_963_200.0


def test_a_clock_that_jumps_is_noticed_before_the_next_answer() -> None:
    wall, steady = Clock(), Clock()
    wall.now, steady.now = NOON_SECONDS, 50.0
    told = ServerTime(wall, steady)
    assert told.problem() == ""
    told.note(NOON)
    for clock in (wall, steady):
        clock.step(600)  # time passes
    assert (told.ahead(), told.problem()) == (0.0, "")
    wall.step(-7200)
    assert told.problem() == "the clock of this machine is 2.0 h behind that of the API server"
    assert told.now() == NOON_SECONDS + 600
    wall.step(7230)
    assert told.now() == NOON_SECONDS + 630, "answers take a while"
    told.note("nonsense")
    assert told.problem() == ""


def test_answers_of_an_api_server_tell_its_time(embedded_cluster: KubernetesCluster, namespace: str) -> None:
    told = embedded_cluster._transport.server_time = ServerTime(lambda: time.time() + 7200)
    assert told.problem() == ""
    embedded_cluster.list(PODS, namespace)
    assert (
        embedded_cluster.server_time.problem() == "the clock of this machine is 2.0 h ahead of that of the API server"
    )
    embedded_cluster._transport.server_time = ServerTime()
