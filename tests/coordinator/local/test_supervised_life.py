"""A supervisor receives reports of real child processes: one child is stopped by SIGSTOP, another child is killed."""

import logging
import signal
import sys
from collections.abc import Iterator

import pytest

from coordinator.life import health_checks
from coordinator.life.children import Children
from coordinator.local import supervisor as supervisor_module
from coordinator.local.supervisor import HUNG_SECONDS, Command, HungChildren, Supervisor
from kube.process.turns import Turns
from tests.support.clock import Clock
from tests.support.waiting import until

pytestmark = pytest.mark.servers

CHILD = """
from coordinator.life import channel
from coordinator.life.health_checks import HEALTHZ, READYZ
from kube.stop import Stop

channel.SECONDS = 0.01
stop = Stop()
stop.listen()
with channel.telling(lambda: {HEALTHZ: [["term", "", ""]], READYZ: []}):
    stop.wait()
"""


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
        return health_checks.problems(children.healthz()).rpartition(" for ")[0]

    until(problem, lambda text: text == f"worker-0: process {pid} has told nothing")
    supervisor.send("worker-0", signal.SIGCONT)
    until(problem, lambda text: text == "")
    supervisor.send("worker-0", signal.SIGKILL)
    until(lambda: supervisor.step() or children.readyz()[0].problem, lambda text: "SIGKILL" in text)


def test_a_child_that_hangs_for_long_is_killed_and_starts_again(
    supervisor: Supervisor, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor_module, "HUNG_SECONDS", 0.1)
    monkeypatch.setattr(supervisor_module, "_JUDGE_SECONDS", 0.05)
    supervisor.start(Command(name="worker-0", arguments=[sys.executable, "-c", CHILD], tells=True))
    until(lambda: supervisor.step() or supervisor.told.have_told())
    [pid] = supervisor.pids().values()
    supervisor.send("worker-0", signal.SIGSTOP)
    with caplog.at_level(logging.ERROR):

        def pids() -> list[int]:
            clock.step(1)
            supervisor.step()
            return list(supervisor.pids().values())

        until(pids, lambda found: found not in ([pid], []))
    assert f"worker-0 hangs (worker-0: process {pid} has told nothing for" in caplog.text
    assert "it is killed and started again" in caplog.text


def test_only_time_in_which_the_supervisor_ran_counts_against_a_child() -> None:
    hung, hanging = HungChildren(), {"worker-0": "it hangs"}
    assert hung.look(hanging, 1_000.0) == {}
    assert hung.look(hanging, 9_000.0) == {}, "the supervisor stood still as well"
    seconds = int(HUNG_SECONDS)
    looks = [hung.look(hanging, 9_001.0 + second) for second in range(seconds)]
    assert looks == [{}] * (seconds - 3) + [hanging, {}, {}]
    assert hung.look({}, 9_100.0) == {}
    assert hung.look(hanging, 9_101.0) == {}, "the time of a new hang begins anew"
