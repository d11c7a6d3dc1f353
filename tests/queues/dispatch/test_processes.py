"""The supervisor restarts its children, stops them in order, kills children that hang, and leaves no child behind."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.local import supervisor as process_supervisor
from coordinator.local.supervisor import Command, Supervisor
from kube.stop import HURRY, PatientStop
from tests.support.waiting import SECONDS, patient, until

pytestmark = pytest.mark.servers

CHILD = """
import os, signal, sys, time
from coordinator.local import supervisor as processes
processes.end_with_parent(grace=5)
def say(word):  # in one write: several children share the file
    os.write(1, f"{sys.argv[1]} {word}\\n".encode())
signal.signal(signal.SIGTERM, lambda *_: (say("ends"), sys.exit(0)))
say("runs")
while True:
    time.sleep(0.05)
"""
STUBBORN = CHILD.replace("sys.exit(0)", "0")


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    supervisor = Supervisor(drain_seconds=5)
    yield supervisor
    for pid in supervisor.pids().values():
        os.kill(pid, signal.SIGKILL)


def command(name: str, output: Path, script: str = CHILD, **fields: object) -> Command:
    arguments = [sys.executable, "-c", textwrap.dedent(script), name]
    return Command(name=name, arguments=arguments, output=output, **fields)  # type: ignore[arg-type]


def lines(output: Path) -> list[str]:
    return output.read_text().splitlines() if output.exists() else []


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def program(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def test_killed_child_is_started_again(supervisor: Supervisor, tmp_path: Path) -> None:
    output = tmp_path / "output"
    supervisor.start(command("child", output))
    until(lambda: lines(output) == ["child runs"])
    os.kill(supervisor.pids()["child"], signal.SIGKILL)
    until(lambda: supervisor.step() or lines(output) == ["child runs"] * 2)
    assert supervisor.stop() == []
    assert lines(output)[-1] == "child ends"


def test_pauses_between_restarts_grow_to_a_cap() -> None:
    pauses = [process_supervisor.restart_pause(deaths) for deaths in (1, 2, 3, 4, 8, 9, 10_000)]
    assert pauses == [0.2, 0.4, 0.8, 1.6, 25.6, 30, 30]


def test_failed_restart_of_a_child_is_repeated(supervisor: Supervisor, tmp_path: Path) -> None:
    script = tmp_path / "program"
    script.write_text("#!/bin/sh\nexec sleep 60\n")
    script.chmod(0o700)
    supervisor.start(Command(name="program", arguments=[str(script)]))
    script.chmod(0o600)
    os.kill(supervisor.pids()["program"], signal.SIGKILL)
    until(lambda: supervisor.step() or not supervisor.pids())
    until(lambda: supervisor.step() or supervisor._children["program"].deaths >= 2)
    script.chmod(0o700)
    until(lambda: supervisor.step() or supervisor.pids())
    supervisor.stop()


def test_stages_are_stopped_one_after_the_other(supervisor: Supervisor, tmp_path: Path) -> None:
    output = tmp_path / "output"
    for name, stage in (("database", 0), ("worker-1", 2), ("worker-2", 2), ("server", 1)):
        supervisor.start(command(name, output, stage=stage))
    until(lambda: len(lines(output)) == 4)
    assert supervisor.stop() == []
    ended = [line.split()[0] for line in lines(output)[4:]]
    assert ended[2:] == ["server", "database"]


def test_child_that_ignores_the_stop_signal_is_killed(supervisor: Supervisor, tmp_path: Path) -> None:
    supervisor = Supervisor(drain_seconds=-process_supervisor.KILL_MARGIN + 0.3)
    output = tmp_path / "output"
    supervisor.start(command("stubborn", output, STUBBORN))
    supervisor.start(command("child", output))
    until(lambda: len(lines(output)) == 2)
    pid = supervisor.pids()["stubborn"]
    assert supervisor.stop() == ["stubborn"]
    assert gone(pid)


SUPERVISE = """
import signal
import sys
from pathlib import Path
from coordinator.local import supervisor as processes
script, output = sys.argv[1:3]
commands = [
    processes.Command(name=f"child-{n}", arguments=[sys.executable, "-c", script, f"child-{n}"], output=Path(output))
    for n in range(2)
]
foreign = processes.Command(name="foreign", arguments=["sleep", "60"], foreign=True)
deaf = ["env", "--ignore-signal=INT", "sleep", "61"]
deaf = processes.Command(name="deaf", arguments=deaf, foreign=True, at_death=signal.SIGKILL)
sys.exit(processes.supervise([*commands, foreign, deaf], drain_seconds=5))
"""


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], list[int], Path]]:
    """Run a supervisor with two torchq children and two foreign children. Return the supervisor, the pids of its
    children and the output file.
    """
    output = tmp_path / "output"
    parent = subprocess.Popen([sys.executable, "-c", SUPERVISE, CHILD, str(output)])
    try:
        until(lambda: len(lines(output)) == 2)
        children = children_of(parent.pid)
        until(lambda: [*map(program, children)].count("sleep") == 2)
        yield parent, children, output
    finally:
        if parent.poll() is None:
            parent.kill()
        parent.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop_signal_is_forwarded_to_all_children(
    supervised: tuple[subprocess.Popen[bytes], list[int], Path], number: signal.Signals
) -> None:
    parent, children, output = supervised
    assert len(children) == 4
    parent.send_signal(number)
    assert parent.wait(patient(SECONDS)) == 0
    assert all(map(gone, children))
    assert sorted(lines(output)[2:]) == ["child-0 ends", "child-1 ends"]


def test_children_end_when_their_supervisor_is_killed(
    supervised: tuple[subprocess.Popen[bytes], list[int], Path],
) -> None:
    parent, children, output = supervised
    parent.kill()
    parent.wait()
    until(lambda: all(map(gone, children)))
    assert sorted(line for line in lines(output) if line.endswith("ends")) == ["child-0 ends", "child-1 ends"]


def test_child_that_ignores_signals_ends_when_its_supervisor_is_killed(tmp_path: Path) -> None:
    output = tmp_path / "output"
    script = STUBBORN.replace("grace=5", "grace=0.3")
    parent = subprocess.Popen([sys.executable, "-c", SUPERVISE, script, str(output)])
    until(lambda: len(lines(output)) == 2)
    children = children_of(parent.pid)
    parent.kill()
    parent.wait()
    until(lambda: all(map(gone, children)))


def test_end_with_parent_does_nothing_without_a_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(process_supervisor.PIPE, raising=False)
    process_supervisor.end_with_parent()
    monkeypatch.setenv(process_supervisor.PIPE, "1:0")
    process_supervisor.end_with_parent()
    assert process_supervisor.PIPE not in os.environ


ONCE = """
import os, sys
tries = sys.argv[1]
with open(tries, "a") as file:
    file.write("try\\n")
sys.exit(0 if len(open(tries).readlines()) == 3 else 1)
"""


def test_command_that_runs_once_is_repeated_until_it_succeeds(supervisor: Supervisor, tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    supervisor.start(Command(name="work", arguments=[sys.executable, "-c", ONCE, str(tries)], once=True))
    until(lambda: supervisor.step() or not supervisor.has("work"))
    assert lines(tries) == ["try"] * 3
    assert supervisor.stop() == []


def test_replaced_command_runs_when_the_old_child_has_ended(supervisor: Supervisor, tmp_path: Path) -> None:
    output = tmp_path / "output"
    supervisor.start(command("child", output))
    until(lambda: lines(output) == ["child runs"])
    after = Command(name="child", arguments=["sh", "-c", f"echo done >> {output}"], once=True)
    supervisor.replace(after)
    supervisor.step()
    assert lines(output) == ["child runs"], "a running child is left alone"
    supervisor.send("child", signal.SIGKILL)
    until(lambda: supervisor.step() or not supervisor.has("child"))
    assert lines(output) == ["child runs", "done"]


WAITS = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
place = sys.argv[2]
os.write(1, b"waits\\n")
while open(place).read().count("server runs") < 2:
    time.sleep(0.01)
"""


def test_children_of_other_stages_are_restarted_while_a_stage_ends(supervisor: Supervisor, tmp_path: Path) -> None:
    """The end of a login session sends SIGTERM to all processes at once."""
    output = tmp_path / "output"
    supervisor.start(command("server", output, stage=0))
    waits = [sys.executable, "-c", textwrap.dedent(WAITS), "worker", str(output)]
    supervisor.start(Command(name="worker", arguments=waits, output=output, stage=1))
    until(lambda: len(lines(output)) == 2)
    os.kill(supervisor.pids()["server"], signal.SIGTERM)
    assert supervisor.end(1) == []  # the worker ends once the server has been restarted
    assert [*supervisor.pids()] == ["server"]
    assert supervisor.stop() == []


@pytest.mark.parametrize(
    ("signals", "expected"),
    [
        ([signal.SIGTERM], (False, False, 0)),
        ([signal.SIGTERM, signal.SIGINT, signal.SIGTERM], (False, False, 2)),
        ([HURRY], (False, True, 0)),
        ([signal.SIGINT, HURRY], (False, True, 0)),
        ([signal.SIGUSR1], (True, False, 0)),
        ([signal.SIGTERM, signal.SIGUSR1], (True, False, 0)),
    ],
)
def test_only_the_hurry_signal_hurries_a_patient_stop(
    signals: list[signal.Signals], expected: tuple[bool, bool, int]
) -> None:
    handlers = {number: signal.getsignal(number) for number in {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, HURRY}}
    stop = PatientStop(leave=signal.SIGUSR1)
    try:
        stop.listen()
        assert not stop()
        for number in signals:
            signal.raise_signal(number)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert stop()
    assert (stop.leaves, stop.hurried, stop.repeated) == expected
