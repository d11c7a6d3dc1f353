"""Runs of containers and their shims, and the death of the node, the shim or the fork server."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from embedded.layout import Layout
from embedded.node.resources.devices import Devices, share
from embedded.node.runs import container_processes
from embedded.node.runs.container_processes import Process
from embedded.node.runs.container_runs import ContainerRuns, Order, Run, RunKey, _lock
from tests.support.waiting import patient, until

pytestmark = pytest.mark.servers

UID = f"uid-{os.getpid()}"
"""Unique to this process, because processes are searched by their mark on the whole machine."""
KEY = RunKey(UID, "c", 0)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


@pytest.fixture
def runs(layout: Layout) -> Iterator[ContainerRuns]:
    runs = ContainerRuns(layout)
    yield runs
    runs.close()


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])


def children(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found += [int(path.name)] if parent(int(path.name)) == pid else []
    return found


def order(layout: Layout, *command: str) -> Order:
    return Order(command, {"PATH": os.environ["PATH"]}, str(layout.root))


def finished(runs: ContainerRuns, key: RunKey = KEY) -> Run:
    run: Run = until(lambda: runs.read(key), lambda run: run is not None and run.ending is not None)
    until(lambda: runs.has_live_shim(key.uid), lambda alive: not alive)
    return run


def folder(layout: Layout, key: RunKey = KEY) -> Path:
    return layout.container(key.uid, key.container, key.restart)


def test_start_runs_a_command_only_once(runs: ContainerRuns, layout: Layout) -> None:
    assert runs.start(KEY, order(layout, "sh", "-c", "echo once"))
    assert not runs.start(KEY, order(layout, "sh", "-c", "echo twice"))
    assert finished(runs).ending
    assert not runs.start(KEY, order(layout, "sh", "-c", "echo again"))
    assert (folder(layout) / "output").read_text() == "once\n"


def test_start_runs_the_command_if_the_last_node_died_before_the_spawn(runs: ContainerRuns, layout: Layout) -> None:
    folder(layout).mkdir(parents=True)
    (folder(layout) / "lock").touch()
    assert runs.read(KEY) is None
    assert runs.start(KEY, order(layout, "true"))
    finished(runs)


def test_start_does_nothing_while_a_shim_holds_the_lock(runs: ContainerRuns, layout: Layout) -> None:
    folder(layout).mkdir(parents=True)
    with _lock(folder(layout)) as lock:
        assert lock is not None
        assert runs.read(KEY) == Run(0)
        assert not runs.start(KEY, order(layout, "true"))
    assert runs.read(KEY) is None


def test_start_refuses_a_run_that_has_a_start_record(runs: ContainerRuns, layout: Layout) -> None:
    folder(layout).mkdir(parents=True)
    (folder(layout) / "started").write_text(json.dumps({"pid": 2**22 + 1, "startTicks": 1, "startedAt": 5.0}))
    assert not runs.start(KEY, order(layout, "touch", "here"))
    assert not (layout.root / "here").exists()


def test_a_run_lost_with_its_machine_has_an_unknown_status(runs: ContainerRuns, layout: Layout) -> None:
    folder(layout).mkdir(parents=True)
    # The recorded pid now belongs to another process: the process of this test.
    (folder(layout) / "started").write_text(json.dumps({"pid": os.getpid(), "startTicks": 1, "startedAt": 5.0}))
    run = runs.read(KEY)
    assert run is not None
    assert run.ending is not None
    assert (run.ending.exit_code, run.ending.reason) == (137, "ContainerStatusUnknown")
    assert runs.read(KEY) == run


def test_a_command_dies_with_its_shim_and_has_an_unknown_status(runs: ContainerRuns, layout: Layout) -> None:
    assert runs.start(KEY, order(layout, "sleep", "600"))
    run = until(lambda: runs.read(KEY), lambda run: run is not None and run.process is not None)
    assert run.process is not None
    os.kill(parent(run.process.pid), signal.SIGKILL)
    lost = finished(runs)
    assert lost.ending is not None
    assert lost.ending.reason == "ContainerStatusUnknown"
    assert not run.process.alive()


def test_environment_values_are_in_no_file_or_command_line_of_the_shim(runs: ContainerRuns, layout: Layout) -> None:
    secret = "xyzzy-4711"
    wish = Order(("sleep", "600"), {"PATH": os.environ["PATH"], "TOKEN": secret}, str(layout.root))
    assert runs.start(KEY, wish)
    members = until(lambda: container_processes.members(KEY.mark), bool)
    shim = parent(min(members))
    assert secret.encode() not in Path(f"/proc/{shim}/cmdline").read_bytes()
    assert secret.encode() not in Path(f"/proc/{shim}/environ").read_bytes()
    assert not any(secret.encode() in file.read_bytes() for file in layout.root.rglob("*") if file.is_file())
    while container_processes.kill_marked(KEY.mark):
        pass
    run = finished(runs)
    assert run.ending is not None
    assert (run.ending.exit_code, run.ending.signal) == (137, 9)


def test_a_killed_fork_server_is_replaced_and_its_shims_survive(runs: ContainerRuns, layout: Layout) -> None:
    gate = layout.root / "gate"
    assert runs.start(KEY, order(layout, "sh", "-c", f"while ! [ -e {gate} ]; do sleep 0.01; done; exit 7"))
    until(lambda: runs.read(KEY), lambda run: run is not None and run.process is not None)
    before = runs._fork_server.pid
    os.kill(before, signal.SIGKILL)
    other = RunKey(f"{UID}-2", "c", 0)
    # The dying server may lose an order, so the order is repeated.
    until(lambda: (runs.start(other, order(layout, "true")), runs.read(other))[1], lambda run: run and run.ending)
    assert runs._fork_server.pid not in (0, before)
    gate.touch()
    run = finished(runs)
    assert run.ending is not None
    assert run.ending.exit_code == 7


def test_the_fork_server_ends_with_its_node_and_the_shims_survive(layout: Layout) -> None:
    runs = ContainerRuns(layout)
    assert runs.start(KEY, order(layout, "sh", "-c", f"while ! [ -e {layout.root / 'gate'} ]; do sleep 0.01; done"))
    run = until(lambda: runs.read(KEY), lambda run: run is not None and run.process is not None)
    zygote = runs._fork_server.pid
    runs._fork_server._socket.close()  # a closed socket has the same effect as the death of this process
    runs._fork_server._process.wait(patient())
    assert parent(run.process.pid) != zygote
    assert runs.read(KEY) == run
    (layout.root / "gate").touch()
    later = ContainerRuns(layout)
    assert finished(later).ending.exit_code == 0


def test_the_fork_server_leaves_no_zombies(runs: ContainerRuns, layout: Layout) -> None:
    for number in range(5):
        key = RunKey(UID, "c", number)
        assert runs.start(key, order(layout, "true"))
        finished(runs, key)
    until(lambda: children(runs._fork_server.pid), lambda found: not found)


def test_prune_deletes_all_but_the_latest_runs(runs: ContainerRuns, layout: Layout) -> None:
    for restart in range(12):
        key = RunKey(UID, "c", restart)
        folder(layout, key).mkdir(parents=True)
    runs.prune(UID, "c")
    kept = sorted(int(path.name) for path in folder(layout).parent.iterdir())
    assert kept == list(range(4, 12))


def test_kill_marked_spares_a_run_whose_mark_has_the_same_prefix(runs: ContainerRuns, layout: Layout) -> None:
    longer = RunKey(UID, "c", 11)
    assert runs.start(longer, order(layout, "sleep", "600"))
    until(lambda: container_processes.members(longer.mark), bool)
    assert not container_processes.kill_marked(RunKey(UID, "c", 1).mark)
    while container_processes.kill_marked(f"{UID}/"):
        pass
    finished(runs, longer)


def test_a_process_with_a_different_start_time_is_not_alive() -> None:
    assert not Process(os.getpid(), 1).alive()
    container_processes.ask_to_end(Process(os.getpid(), 1), Process(os.getpid(), 1))  # no process gets a signal


def test_gpus_stay_assigned_over_a_node_restart(layout: Layout) -> None:
    layout.pod("a").mkdir(parents=True)
    layout.pod("b").mkdir(parents=True)
    devices = Devices(layout, ("0", "1", "2"))
    assert devices.assign("a", 2) == ("0", "1")
    again = Devices(layout, ("0", "1", "2"))
    assert again.assign("a", 2) == ("0", "1")
    assert again.assign("b", 2) is None
    again.release("a")
    assert again.assign("b", 2) == ("0", "1")
    assert Devices(layout, ("0", "1", "2")).assign("a", 2) is None


def test_share_divides_the_gpus_of_the_pod_among_its_containers() -> None:
    def container(name: str, gpus: int) -> dict[str, object]:
        return {"name": name, "resources": {"limits": {"nvidia.com/gpu": gpus}}}

    spec = {
        "initContainers": [container("i", 2)],
        "containers": [container("a", 1), container("b", 2), container("c", 0)],
    }
    parts = {name: share(spec, name, ("5", "6", "7")) for name in "iabc"}
    assert parts == {"i": ("5", "6"), "a": ("5",), "b": ("6", "7"), "c": ()}


def test_a_run_whose_output_cannot_be_written_fails_with_start_error(runs: ContainerRuns, layout: Layout) -> None:
    (folder(layout) / "output").mkdir(parents=True)
    assert runs.start(KEY, order(layout, "true"))
    run = finished(runs)
    assert run.ending is not None
    assert (run.ending.exit_code, run.ending.reason) == (128, "StartError")
    assert "output" in run.ending.message


@pytest.mark.parametrize(
    ("program", "hint"),
    [
        ("no-such-program", "No such file or directory; is it on the PATH of this machine?"),
        ("/no/such/program", "No such file or directory; is it on this machine, which runs no images?"),
        ("/etc/passwd", "Permission denied"),
    ],
)
def test_a_program_that_cannot_be_executed_has_a_message_with_the_cause(
    runs: ContainerRuns, layout: Layout, program: str, hint: str
) -> None:
    assert runs.start(KEY, Order((program,), {}, "/"))
    run = finished(runs)
    assert run.ending is not None
    assert run.ending.message == f"cannot execute {program!r}: {hint}"


def test_a_command_starts_with_no_signal_ignored_or_blocked(runs: ContainerRuns, layout: Layout) -> None:
    assert runs.start(KEY, order(layout, "sh", "-c", "grep -E 'SigIgn|SigBlk' /proc/self/status"))
    finished(runs)
    _, blocked, _, ignored = (folder(layout) / "output").read_text().split()
    assert int(blocked, 16) & ~0x180000000 == 0  # signals 32 and 33 are reserved by the C library
    assert int(ignored, 16) & ~0x180000000 == 0


def test_the_exit_record_is_written_to_space_reserved_at_the_start(
    runs: ContainerRuns, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert runs.start(KEY, order(layout, "sh", "-c", f"while ! [ -e {layout.root / 'gate'} ]; do sleep 0.01; done"))
    run = until(lambda: runs.read(KEY), lambda run: run is not None and run.process is not None)
    taken = folder(layout) / ".exited"
    before = taken.stat()
    assert before.st_blocks * 512 >= before.st_size > 0
    (layout.root / "gate").touch()
    assert finished(runs).ending.exit_code == 0
    after = (folder(layout) / "exited").stat()
    assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)
    assert run.process is not None
