"""The state of child processes as their supervisor reports it."""

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.life import children, health_checks
from coordinator.life.children import Children, SupervisorLife
from coordinator.life.health_checks import Check
from kube.process.turns import Turns
from tests.support.clock import Clock


@dataclass(frozen=True)
class Told:
    """Probes with fixed answers."""

    late: str = ""
    unready: str = ""

    def healthz(self) -> Sequence[Check]:
        return [Check("batches", self.late)]

    def readyz(self) -> Sequence[Check]:
        return [Check("registered", self.unready)]


def test_a_process_that_runs_and_tells_nothing_for_30_seconds_fails() -> None:
    clock = Clock()
    known = Children(clock)
    known.begin("worker-0", 7)
    known.hear("worker-0", children.report(Told()))
    clock.step(30)
    assert health_checks.problems(known.healthz()) == ""
    clock.step(1)
    assert health_checks.problems(known.healthz()) == "worker-0: process 7 has told nothing for 31 s"
    known.hear("worker-0", children.report(Told()))
    assert health_checks.problems([*known.healthz(), *known.readyz()]) == ""


def test_a_process_that_starts_slowly_does_not_hang_for_five_minutes() -> None:
    clock = Clock()
    known = Children(clock)
    known.begin("worker-0", 7)
    assert health_checks.problems(known.readyz()) == "worker-0: it has told nothing yet"
    clock.step(children.START_SECONDS)
    assert health_checks.problems(known.healthz()) == ""
    clock.step(1)
    assert health_checks.problems(known.healthz()) == "worker-0: process 7 has told nothing for 301 s"


def test_the_checks_of_each_process_are_listed_under_its_name() -> None:
    known = Children()
    for name, told in {"worker-0": Told(late="hangs"), "worker-1": Told(unready="not yet")}.items():
        known.begin(name, 1)
        assert not known.have_told()
        known.hear(name, children.report(told))
    assert known.have_told()
    names = ["worker-0", "worker-0/batches", "worker-1", "worker-1/batches"]
    assert [check.name for check in known.healthz()] == names
    assert health_checks.problems(known.healthz()) == "worker-0/batches: hangs"
    assert health_checks.problems(known.readyz()) == "worker-1/registered: not yet"


def test_a_process_that_has_ended_hangs_not_and_is_not_ready() -> None:
    clock = Clock()
    known = Children(clock)
    known.begin("worker-0", 7)
    known.hear("worker-0", children.report(Told(late="hangs"), "http://127.0.0.1:1"))
    assert known.urls() == {"worker-0": "http://127.0.0.1:1"}
    known.end("worker-0", "was ended by SIGKILL")
    clock.step(3_600)
    assert health_checks.problems(known.healthz()) == ""
    assert health_checks.problems(known.readyz()) == "worker-0: it was ended by SIGKILL, and starts again"
    assert known.urls() == {}
    known.hear("worker-1", {})  # worker-1 has ended and is forgotten
    known.forget("worker-0")
    assert known.healthz() == []


def test_a_supervisor_whose_own_loop_hangs_fails_and_is_not_ready_before_its_processes() -> None:
    clock = Clock()
    turns = Turns(clock)
    life = SupervisorLife(Children(clock), turns)
    assert health_checks.problems(life.readyz()) == "processes: none has begun yet"
    turns.loop("supervisor").mark()
    clock.step(31)
    assert health_checks.problems(life.healthz()) == "supervisor: it has not turned for 31 s"
