"""Memory limits: which memory counts, and how a container that exceeds its limit ends."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedded.node.resources import used_memory
from embedded.node.resources.memory_watch import MemoryWatch, WatchedContainer, WatchedPod
from embedded.node.resources.used_memory import MemoryUse
from embedded.node.runs import container_processes
from embedded.node.runs.container_processes import ContainerProcesses, Process
from embedded.node.runs.container_runs import RunKey
from tests.support.embedded.stage import Stage, StartNode, terminated
from tests.support.waiting import SECONDS, patient, until

MIB = 1024 * 1024
UID = f"uid-{os.getpid()}"
"""Unique to this process, because processes are searched by their mark on the whole machine."""
WAIT = "import time; time.sleep(600)"
GATE = "import os, time\nwhile not os.path.exists(os.environ['TORCHQ_VOLUME_V'] + '/go'): time.sleep(0.02)\n"


def limited(limit: str, script: str) -> dict[str, Any]:
    return {
        "command": ["python", "-c", script],
        "resources": {"limits": {"memory": limit}, "requests": {"memory": "1Mi"}},
    }


def assert_oom_killed(ended: dict[str, Any], limit: str, container: str = "c0") -> None:
    assert (ended["exitCode"], ended["reason"], ended["signal"]) == (137, "OOMKilled", 9)
    assert f"container {container} used " in ended["message"]
    assert f"its limit is {limit} (resources.limits.memory)" in ended["message"]
    used = int(ended["message"].split(" used ")[1].split("Mi")[0])
    assert used >= int(limit.removesuffix("Mi"))  # a control group permits no more memory


# Measurement


@given(st.integers(1, 1000), st.integers(0, 3000), st.integers(0, 1000), st.integers(0, 3000), st.floats(0, 10))
def test_a_measurement_is_due_if_the_limit_may_have_been_exceeded(
    limit: int, rough: int, used: int, before: int, age: float
) -> None:
    last = MemoryUse(used, before, 100.0)
    due = used_memory.is_due(limit, rough, last, 100.0 + age, interval=2.0)
    if rough <= limit:
        assert not due
    elif age >= 2.0 or used + (rough - before) > limit:
        assert due
    assert used_memory.is_due(limit, rough, None, 100.0) == (rough > limit)


@pytest.mark.parametrize(
    ("before", "bound", "seconds", "rising"),
    [
        (10, 60, 0.1, True),  # 160 MiB in 0.2 s
        (10, 55, 0.1, False),  # 145
        (60, 60, 0.1, False),
        (90, 80, 0.1, False),
        (0, 60, 0.0, False),
    ],
)
def test_use_rises_fast_if_it_would_exceed_the_limit_before_the_next_look(
    before: int, bound: int, seconds: float, rising: bool
) -> None:
    assert used_memory.is_rising(150, before, bound, seconds, 0.2) is rising


@contextmanager
def shared_by(workers: int, setup: str) -> Iterator[WatchedContainer]:
    """Start a process that allocates memory and forks workers that read all of this memory. Yield it as a watched
    container.
    """
    script = (
        f"import mmap, os, time\n{setup}\n"
        f"for _ in range({workers}):\n"
        "    if not os.fork(): break\n"
        "sum(block[i] for i in range(0, len(block), 4096)); os.write(1, b'r'); time.sleep(600)\n"
    )
    process = subprocess.Popen(["python3", "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    ticks = int(Path(f"/proc/{process.pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    watched = WatchedContainer(RunKey(UID, "c", 0), Process(process.pid, ticks))
    try:
        assert process.stdout.read(workers + 1) == b"r" * (workers + 1)
        yield watched
    finally:
        while container_processes.kill_marked(f"{UID}/", watched.process):
            pass
        process.wait()
        process.stdout.close()


PRIVATE = f"block = bytearray(os.urandom(1024)) * {100 * 1024}"
SHARED = f"block = mmap.mmap(-1, 100 * {MIB}); block.write(os.urandom(1024) * {100 * 1024})"


@pytest.mark.parametrize("setup", [PRIVATE, SHARED])
@pytest.mark.servers
def test_memory_shared_by_processes_counts_once(setup: str) -> None:
    with shared_by(3, setup) as watched:
        pids = container_processes.members(f"{UID}/", watched.process)
        assert len(pids) == 4
        assert used_memory.rough(pids) > 400 * MIB
        assert 100 * MIB < used_memory.used(pids) < 170 * MIB
    until(lambda: used_memory.rough(pids) + used_memory.used(pids), lambda left: left == 0)  # all processes have ended


@pytest.mark.parametrize(("limit", "ended"), [(200, False), (90, True)])
@pytest.mark.parametrize("setup", [PRIVATE, SHARED])
@pytest.mark.servers
def test_a_container_is_killed_only_if_its_shared_memory_exceeds_the_limit(setup: str, limit: int, ended: bool) -> None:
    with shared_by(3, setup) as found:
        watched, recorded = replace(found, limit=limit * MIB), list[RunKey]()
        watch = MemoryWatch(lambda key, _: recorded.append(key))
        for now in range(1, 5):
            watch.check({UID: WatchedPod((watched,))}, float(now))
            if recorded:
                break
        assert bool(recorded) == ended
        until(watched.process.alive, lambda alive: alive != ended)  # the process needs a moment to end


@pytest.mark.servers
def test_a_container_over_its_limit_is_killed_if_the_record_cannot_be_written() -> None:
    def full(key: RunKey, message: str) -> None:
        raise OSError(28, "No space left on device")

    with shared_by(0, PRIVATE) as found:
        watch = MemoryWatch(full)
        watch.check({UID: WatchedPod((replace(found, limit=MIB),))}, 1.0)
        until(found.process.alive, lambda alive: not alive)
        assert "No space left" in watch.errors.summary


def test_text_formats_bytes_as_mebibytes_or_gibibytes() -> None:
    sizes = [used_memory.text(size) for size in (0, 512, 300 * MIB, 9_000 * MIB, 20_480 * MIB)]
    assert sizes == ["0 bytes", "512 bytes", "300Mi", "9000Mi", "20.0Gi"]


@pytest.mark.servers
def test_processes_are_matched_to_containers_by_mark_session_and_ancestry(tmp_path: Path) -> None:
    script = "setsid env -i sleep 600 & setsid sleep 600 & echo ready; wait"
    environment = {**os.environ, container_processes.MARK: f"{UID}/c/0/"}
    process = subprocess.Popen(["sh", "-c", script], env=environment, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        ticks = int(Path(f"/proc/{process.pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
        leader = Process(process.pid, ticks)
        members = ContainerProcesses()
        found = until(lambda: members.find({f"{UID}/c/0/": leader, f"{UID}/d/0/": Process(1, 1)}), lambda seen: len(
            seen[f"{UID}/c/0/"]) == 3)  # fmt: skip
        assert found[f"{UID}/d/0/"] == set()
    finally:
        while container_processes.kill_marked(f"{UID}/", leader):
            pass
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


# Pods on a node


def test_a_container_over_its_memory_limit_is_oom_killed(stage: Stage) -> None:
    script = f"block = bytearray(400 * {MIB})\nfor i in range(0, len(block), 4096): block[i] = 1\n{WAIT}"
    name = stage.make([limited("100Mi", script)])
    assert_oom_killed(terminated(stage.phase(name, "Failed")), "100Mi")


def test_a_container_without_a_memory_limit_is_not_killed(stage: Stage) -> None:
    name = stage.run("python", "-c", f"block = bytearray(300 * {MIB})")
    stage.phase(name, "Succeeded")


def test_memory_of_a_daemon_counts_for_its_container(stage: Stage) -> None:
    script = (
        "import os, time\n"
        "if not os.fork():\n"
        "    os.setsid()\n"
        "    if not os.fork():\n"
        f"        block = bytearray(300 * {MIB}); time.sleep(600)\n"
        "    os._exit(0)\n"
        "time.sleep(600)\n"
    )
    name = stage.make([limited("100Mi", script)])
    uid = stage.get(name)["metadata"]["uid"]
    assert_oom_killed(terminated(stage.phase(name, "Failed")), "100Mi")
    until(lambda: container_processes.members(f"{uid}/"), lambda members: not members)


def test_an_init_container_over_its_memory_limit_is_oom_killed(stage: Stage) -> None:
    name = stage.make([{"command": ["true"]}], init=[limited("100Mi", f"block = bytearray(300 * {MIB})\n{WAIT}")])
    status = stage.phase(name, "Failed")
    assert_oom_killed(terminated(status, kind="initContainerStatuses"), "100Mi", "i0")


def test_only_the_container_over_its_limit_is_killed(stage: Stage) -> None:
    name = stage.make([limited("100Mi", f"block = bytearray(300 * {MIB})\n{WAIT}"), limited("400Mi", WAIT)])
    status = stage.wait(name, lambda status: "terminated" in str(status.get("containerStatuses")))
    assert_oom_killed(terminated(status), "100Mi")
    assert "running" in status["containerStatuses"][1]["state"]
    stage.delete(name, grace=0)
    stage.wait_gone(name)


def test_the_largest_container_is_killed_if_the_pod_exceeds_its_limit(stage: Stage) -> None:
    hungry = {"command": ["python", "-c", f"block = bytearray(200 * {MIB})\n{WAIT}"]}
    small = {"command": ["python", "-c", f"block = bytearray(80 * {MIB})\n{WAIT}"]}
    name = stage.make([small, hungry], resources={"limits": {"memory": "200Mi"}})
    status = stage.wait(name, lambda status: "terminated" in str(status.get("containerStatuses")))
    ended = terminated(status, 1)
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")
    assert "its limit is 200Mi (spec.resources.limits.memory)" in ended["message"]
    assert "container c1 used most of it" in ended["message"]
    stage.delete(name, grace=0)
    stage.wait_gone(name)


def test_a_restarted_container_reports_an_oom_kill_as_its_last_state(stage: Stage) -> None:
    script = (
        "import os, time\n"
        "once = os.environ['TORCHQ_VOLUME_V'] + '/once'\n"
        "if os.path.exists(once): raise SystemExit\n"
        "open(once, 'w').close()\n"
        f"block = bytearray(300 * {MIB}); time.sleep(600)\n"
    )
    name = stage.make([limited("100Mi", script)], policy="OnFailure", volumes=[{"name": "v", "emptyDir": {}}])
    status = stage.phase(name, "Succeeded")
    assert status["containerStatuses"][0]["lastState"]["terminated"]["reason"] == "OOMKilled"


def test_a_restarted_node_enforces_the_limits_of_running_containers(bare: Stage, start: StartNode) -> None:
    node = start()
    script = f"{GATE}block = bytearray(300 * {MIB})\n{WAIT}"
    name = bare.make([limited("100Mi", script)], volumes=[{"name": "v", "emptyDir": {}}])
    bare.phase(name, "Running")
    node.kill()
    node.wait(patient(SECONDS))
    (bare.folder(name) / "volumes" / "v" / "go").touch()
    start()
    assert_oom_killed(terminated(bare.phase(name, "Failed")), "100Mi")
