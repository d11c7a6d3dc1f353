"""Control groups of containers, in a simulated hierarchy: the choice of a group, and the record of an OOM kill."""

import os
from pathlib import Path

import pytest

from embedded.layout import Layout
from embedded.node.runs import cgroups, shim
from embedded.node.runs.cgroups import ControlGroups
from embedded.node.runs.container_runs import ContainerRuns, Order, RunKey
from embedded.node.runs.memory_group import MemoryGroup
from tests.support.waiting import until

MIB = 1024 * 1024
OWN = "user.slice/user-7.slice/user@7.service/app.slice/shell.scope"
KEY = RunKey(f"uid-{os.getpid()}", "torch", 0)


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    """Create a hierarchy like that of systemd. File permissions decide which groups the user may write."""
    mount = tmp_path / "cgroup"
    (mount / OWN).mkdir(parents=True)
    for folder in (mount / OWN, *(mount / step for step in Path(OWN).parents)):
        (folder / "cgroup.subtree_control").write_text("" if folder.name == "shell.scope" else "cpu memory pids\n")
        (folder / "cgroup.procs").touch()
    (tmp_path / "own").write_text(f"0::/{OWN}\n")
    return mount


def found(mount: Path, own: str = "") -> Path | None:
    if own:
        (mount.parent / "own").write_text(own)
    return cgroups.find(mount, mount.parent / "own").folder


def test_find_returns_the_nearest_group_with_a_memory_controller(mount: Path) -> None:
    assert found(mount) == mount / Path(OWN).parent


def test_find_skips_a_group_without_a_memory_controller(mount: Path) -> None:
    (mount / Path(OWN).parent / "cgroup.subtree_control").write_text("cpu pids\n")
    assert found(mount) == mount / Path(OWN).parent.parent


def test_find_skips_a_group_that_the_user_cannot_write(mount: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = mount / "user.slice/user-7.slice/user@7.service"
    monkeypatch.setattr(cgroups.os, "access", lambda path, _: Path(path).is_relative_to(mine))
    assert found(mount) == mount / Path(OWN).parent
    monkeypatch.setattr(cgroups.os, "access", lambda *_: False)
    assert found(mount) is None


@pytest.mark.parametrize("own", ["4:memory:/user\n0::/\n", "4:memory:/user\n", "0::/../other\n", "no such line\n"])
def test_find_returns_nothing_without_cgroup_version_2(mount: Path, own: str) -> None:
    assert found(mount, own) is None
    assert cgroups.find(mount, mount / "missing").folder is None


@pytest.mark.parametrize(
    ("own", "folder"), [("4:memory:/docker/7\n0::/\n", "memory"), ("4:cpu,memory:/mine\n", "memory/mine")]
)
def test_find_returns_the_own_group_of_version_1(mount: Path, own: str, folder: str) -> None:
    (mount / "memory/mine").mkdir(parents=True)
    for each in ("memory", "memory/mine"):
        (mount / each / "memory.limit_in_bytes").touch()
    assert found(mount, own) == mount / folder


def test_find_skips_a_group_of_version_1_that_the_user_cannot_write(
    mount: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (mount / "memory").mkdir()
    (mount / "memory/memory.limit_in_bytes").touch()
    monkeypatch.setattr(cgroups.os, "access", lambda *_: False)
    assert found(mount, "4:memory:/docker/7\n") is None


def test_a_new_group_of_version_1_has_the_memory_limit_without_swap(tmp_path: Path) -> None:
    (tmp_path / "torchq-x").mkdir()
    for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
        (tmp_path / "torchq-x" / name).touch()
    group = Path(ControlGroups(tmp_path).make("x", 5 * MIB))
    assert {file.name: file.read_text() for file in group.iterdir()} == {
        "memory.limit_in_bytes": str(5 * MIB),
        "memory.memsw.limit_in_bytes": str(5 * MIB),
    }


@pytest.mark.skipif(cgroups.find().folder is None, reason="this user may not create control groups")
@pytest.mark.servers
def test_the_kernel_ends_a_container_as_a_whole_at_its_limit(tmp_path: Path) -> None:
    """The child of the container's first process exceeds the limit so briefly that no watch sees the excess."""
    runs = ContainerRuns(Layout(tmp_path / "data"), groups=cgroups.find())
    script = f"python3 -c 'bytearray(200 * {MIB})'; sleep 600"
    try:
        assert runs.start(KEY, Order(("sh", "-c", script), {"PATH": os.environ["PATH"]}, str(tmp_path), 50 * MIB))
        run = until(lambda: runs.read(KEY), lambda run: run is not None and run.ending is not None)
        assert (run.ending.exit_code, run.ending.reason) == (137, "OOMKilled")
        assert "container torch used 50Mi of memory, and its limit is 50Mi" in run.ending.message
    finally:
        runs.close()


def test_make_returns_no_path_if_the_group_cannot_be_created(tmp_path: Path) -> None:
    assert ControlGroups().make("x", MIB) == ""
    assert ControlGroups(tmp_path).make("x", 0) == ""
    assert ControlGroups(tmp_path / "missing").make("x", MIB) == ""
    (tmp_path / "torchq-x").touch()
    assert ControlGroups(tmp_path).make("x", MIB) == ""


def test_a_new_group_has_the_memory_limit(tmp_path: Path) -> None:
    (tmp_path / "torchq-x").mkdir()  # a killed shim has left the group behind
    group = Path(ControlGroups(tmp_path).make("x", 5 * MIB))
    assert group.parent == tmp_path
    assert (group / "memory.max").read_text() == str(5 * MIB)
    assert (group / "memory.oom.group").read_text() == "1"


@pytest.mark.servers
def test_a_command_joins_its_group_before_it_begins(tmp_path: Path) -> None:
    # The simulated group has no cgroup.procs file. The command must run and end as usual without this file.
    layout = Layout(tmp_path / "data")
    runs = ContainerRuns(layout, groups=ControlGroups(tmp_path))
    try:
        assert runs.start(KEY, Order(("sh", "-c", "exit 5"), {"PATH": os.environ["PATH"]}, str(tmp_path), 5 * MIB))
        run = until(lambda: runs.read(KEY), lambda run: run is not None and run.ending is not None)
        assert (run.ending.exit_code, run.ending.reason) == (5, "")
    finally:
        runs.close()
    (tmp_path / "cgroup.procs").touch()
    MemoryGroup(str(tmp_path)).join()
    assert (tmp_path / "cgroup.procs").read_text() == "0"


def test_a_container_that_the_kernel_killed_is_recorded_as_out_of_memory(tmp_path: Path) -> None:
    group, run = tmp_path / "group", tmp_path / "torch" / "0"
    group.mkdir()
    run.mkdir(parents=True)
    (group / "memory.max").write_text(f"{300 * MIB}\n")
    (group / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 1\noom_kill 0\noom_group_kill 0\n")
    assert not MemoryGroup(str(group)).has_killed()
    (group / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 1\noom_kill 3\noom_group_kill 1\n")
    assert MemoryGroup(str(group)).has_killed()
    shim._record_oom(MemoryGroup(str(group)), str(run))
    said = (run / shim.OUT_OF_MEMORY).read_text().rstrip()
    assert said.startswith("container torch used 300Mi of memory, and its limit is 300Mi (resources.limits.memory)")
