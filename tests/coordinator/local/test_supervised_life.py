"""A supervisor hears of real child processes: one that is stopped by SIGSTOP, and one that is killed."""

import signal
import sys
from collections.abc import Iterator

import pytest

from coordinator.life import checks
from coordinator.life.children import Children
from coordinator.local.supervisor import Command, Supervisor
from kube.process.turns import Turns
from tests.support.clock import Clock
from tests.support.waiting import until

CHILD = """
from coordinator.life import channel
from coordinator.life.checks import HEALTHZ, READYZ
from kube.stop import Stop

channel.SECONDS = 0.01
stop = Stop()
stop.listen()
with channel.telling(lambda: {HEALTHZ: [["term", "", ""]], READYZ: []}):
    stop.wait()
"""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def supervisor(clock: Clock) -> Iterator[Supervisor]:
    made = Supervisor(5.0, Children(clock), Turns(clock).loop("supervisor"))
    yield made
    made.stop()


def test_a_supervisor_names_a_child_that_is_stopped_and_hears_again_of_one_that_goes_on(
    supervisor: Supervisor, clock: Clock
) -> None:
    children = supervisor.told
    supervisor.start(Command(name="worker-0", arguments=[sys.executable, "-c", CHILD], tells=True))

    def has_told() -> bool:
        supervisor.step()
        return children.have_told()

    until(has_told)
    [pid] = supervisor.pids().values()
    assert [check.name for check in children.healthz()] == ["worker-0", "worker-0/term"]
    supervisor.send("worker-0", signal.SIGSTOP)
    clock.step(31)

    def problem() -> str:
        supervisor.step()
        clock.step(0.001)
        return checks.problems(children.healthz()).rpartition(" for ")[0]

    until(problem, lambda text: text == f"worker-0: process {pid} has told nothing")
    supervisor.send("worker-0", signal.SIGCONT)
    until(problem, lambda text: text == "")
    supervisor.send("worker-0", signal.SIGKILL)
    until(lambda: supervisor.step() or children.readyz()[0].problem, lambda text: "SIGKILL" in text)
