"""The choice of the current local cluster for a user, and of the cluster that commands use."""

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator import looks, settings
from coordinator.cli.session import Session
from coordinator.errors import LocalError
from coordinator.local import current_cluster, messages, stack_state, target, user_folders
from coordinator.local.current_cluster import LocalCluster
from coordinator.local.stack_state import Files, hold_lock
from coordinator.local.target import ClusterTarget
from coordinator.rbac.permissions import COORDINATOR, WORKER

HERE = socket.gethostname()
ENTRIES = st.lists(
    st.builds(
        LocalCluster, data=st.sampled_from(["/", "/usr", "/tmp", "/gone"]), host=st.sampled_from([HERE, "elsewhere"])
    ),
    unique=True,
)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path)}


def data_folder(path: Path) -> Path:
    """Create a data folder as a stopped stack leaves it."""
    path.mkdir(parents=True)
    Files(path).layout.kubeconfig.write_text(json.dumps(config("torchq-local")))
    Files(path).lock.write_text("1 1")
    return path


def config(context: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context,
        "clusters": [{"name": context, "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": context, "user": {}}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
    }


def another_cluster(home: Path, context: str = "prod") -> Path:
    """Write a kubeconfig to kubectl's default path."""
    path = home / ".kube" / "config"
    path.parent.mkdir()
    path.write_text(json.dumps(config(context)))
    return path


@contextmanager
def running(folder: Path) -> Iterator[None]:
    """Run the stack of a data folder for the duration of the block, with this process as its supervisor."""
    with hold_lock(Files(folder)):
        yield


def found(environ: dict[str, str], *, serves: bool = False, **flags: str) -> ClusterTarget:
    return target.find(settings.resolve(flags, environ, None), environ, serves=serves)


def test_the_newest_cluster_is_current_and_the_previous_one_returns_after_it(
    environ: dict[str, str], tmp_path: Path
) -> None:
    first, second = data_folder(tmp_path / "first"), data_folder(tmp_path / "second")
    assert current_cluster.data_folder(environ) is None
    with running(first), running(second):
        current_cluster.make_current(environ, first)
        current_cluster.make_current(environ, second)
        assert current_cluster.data_folder(environ) == second
        assert current_cluster.remove(environ, second, lambda _: True)
        assert current_cluster.data_folder(environ) == first
        assert current_cluster.remove(environ, first, lambda _: True)
    assert current_cluster.data_folder(environ) is None
    assert not current_cluster.remove(environ, first, lambda _: True)


def test_a_running_cluster_becomes_current_before_a_stopped_one(environ: dict[str, str], tmp_path: Path) -> None:
    runs, crashed, last = (data_folder(tmp_path / name) for name in ("runs", "crashed", "last"))
    for folder in (runs, crashed, last):
        current_cluster.make_current(environ, folder)
    current_cluster.remove(environ, last, lambda folder: folder == runs)
    assert current_cluster.data_folder(environ) == runs
    current_cluster.remove(environ, runs, lambda _: False)
    assert current_cluster.data_folder(environ) == crashed, "commands for this cluster say that it does not run"


@given(ENTRIES, st.sampled_from(["/", "/usr"]))
def test_only_the_returned_cluster_and_removed_folders_are_forgotten(entries: list[LocalCluster], folder: str) -> None:
    gone = LocalCluster(folder, HERE)
    left = current_cluster.without(entries, gone, lambda path: path == Path("/usr"))
    forgotten = {gone, LocalCluster("/gone", HERE)}
    assert set(left) == set(entries) - forgotten
    assert len(left) == len(set(left))
    if LocalCluster("/usr", HERE) in left:
        assert left[-1] == LocalCluster("/usr", HERE)


def test_the_note_is_private_and_is_deleted_with_the_last_cluster(environ: dict[str, str], tmp_path: Path) -> None:
    folder = data_folder(tmp_path / "data")
    current_cluster.make_current(environ, folder)
    note = current_cluster.note_path(environ)
    assert note is not None
    assert note.stat().st_mode & 0o077 == 0
    assert note.parent.stat().st_mode & 0o077 == 0
    current_cluster.remove(environ, folder, lambda _: False)
    assert list(note.parent.iterdir()) == []


def test_machines_with_a_shared_home_folder_have_separate_current_clusters(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = data_folder(tmp_path / "data")
    current_cluster.make_current(environ, folder)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(socket, "gethostname", lambda: "elsewhere")
        assert current_cluster.data_folder(environ) is None
        assert not current_cluster.remove(environ, folder, lambda _: True)
    assert current_cluster.data_folder(environ) == folder


_HAND_EDITED = [
    "{}",
    f'[{{"data": "x", "host": "{socket.gethostname()}"}}]',
    f'[{{"data": "", "host": "{socket.gethostname()}"}}]',
    f'[{{"data": "/a\\u0000b", "host": "{socket.gethostname()}"}}]',
    f'[{{"data": 5, "host": "{socket.gethostname()}"}}]',
    '[{"data": "/x", "host": 5}]',
]


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"data": "/x"}', '[{"data": "/x"}]', "null", *_HAND_EDITED])
def test_a_damaged_note_is_an_error_and_no_other_cluster_is_used(
    environ: dict[str, str], tmp_path: Path, text: str
) -> None:
    another_cluster(tmp_path)
    note = current_cluster.note_path(environ)
    assert note is not None
    note.parent.mkdir(parents=True)
    note.write_text(text)
    with pytest.raises(LocalError, match=str(note)):
        found(environ)


def test_a_note_that_cannot_be_written_is_an_error(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / ".config").write_text("in the way")
    with pytest.raises(LocalError, match="cannot store which local cluster is current"):
        current_cluster.make_current(environ, tmp_path / "data")


def test_flag_environment_current_cluster_and_default_apply_in_this_order(
    environ: dict[str, str], tmp_path: Path
) -> None:
    folder, usual = data_folder(tmp_path / "data"), str(another_cluster(tmp_path))
    local = str(folder / "kubeconfig")
    assert (found(environ).kubeconfig, found(environ).source) == (usual, "~/.kube/config")
    current_cluster.make_current(environ, folder)
    assert (found(environ).kubeconfig, found(environ).source) == (local, "torchq local up")
    in_pod = {**environ, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert found(in_pod).kubeconfig == local
    assert found(environ, context="prod").kubeconfig == usual
    named = {**environ, "KUBECONFIG": "/elsewhere"}
    assert (found(named).kubeconfig, found(named).source) == ("/elsewhere", "KUBECONFIG")
    assert found(named, context="prod").kubeconfig == "/elsewhere"
    own = {**named, "TORCHQ_KUBECONFIG": "/mine"}
    assert (found(own).kubeconfig, found(own).source) == ("/mine", "TORCHQ_KUBECONFIG")
    flag = found(own, kubeconfig="/flag")
    assert (flag.kubeconfig, flag.source) == ("/flag", "--kubeconfig")


@pytest.mark.parametrize("role", [COORDINATOR, WORKER])
def test_coordinator_and_worker_ignore_the_current_cluster(
    environ: dict[str, str], tmp_path: Path, role: object
) -> None:
    current_cluster.make_current(environ, data_folder(tmp_path / "data"))
    pod = Session({}, None, {**environ, "KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert pod.target.source == "torchq local up"
    assert pod.with_role(role).target == ClusterTarget("", "in-cluster")  # type: ignore[arg-type]
    another_cluster(tmp_path)
    assert Session({}, None, environ).with_role(role).target.source == "~/.kube/config"  # type: ignore[arg-type]


@pytest.mark.parametrize("named", [{}, {"KUBECONFIG": "data/kubeconfig"}, {"TORCHQ_KUBECONFIG": "data/kubeconfig"}])
def test_a_stopped_local_cluster_is_an_error_and_is_not_replaced(
    environ: dict[str, str], tmp_path: Path, named: dict[str, str]
) -> None:
    another_cluster(tmp_path)
    folder = data_folder(tmp_path / "data")
    current_cluster.make_current(environ, folder)
    session = Session({}, None, environ | {name: str(tmp_path / path) for name, path in named.items()})
    with pytest.raises(LocalError, match=f"{folder} is not running: start it with `torchq local up --data {folder}`"):
        _ = session.connection
    with running(folder):
        session.target.check()
    (folder / "lock").unlink()
    if not named:
        with pytest.raises(LocalError, match="is not running"):
            _ = session.connection


def test_each_kind_of_cluster_has_a_name_for_output(environ: dict[str, str], tmp_path: Path) -> None:
    usual = data_folder(tmp_path / ".local" / "state" / "torchq")
    other = data_folder(tmp_path / "other")
    another_cluster(tmp_path, "prod")
    assert Session({}, None, environ).cluster_name == "prod"
    assert Session({"context": "test"}, None, environ).cluster_name == "test"
    current_cluster.make_current(environ, usual)
    assert Session({}, None, environ).cluster_name == "local"
    current_cluster.make_current(environ, other)
    assert Session({}, None, environ).cluster_name == f"local:{other}"
    in_pod = {"HOME": str(tmp_path / "nobody"), "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert Session({}, None, in_pod).cluster_name == "in-cluster"


def test_up_of_a_private_cluster_prints_the_kubeconfig_if_no_cluster_is_current(
    environ: dict[str, str], tmp_path: Path
) -> None:
    folder = data_folder(tmp_path / "data")
    (said,) = messages.after_up(settings.resolve({}, environ, None), environ, folder)
    assert said == (
        f"torchq's commands go to no cluster; for this cluster: torchq --kubeconfig {folder}/kubeconfig COMMAND"
    )


def test_up_and_down_print_the_cluster_that_commands_use(environ: dict[str, str], tmp_path: Path) -> None:
    another_cluster(tmp_path, "my prod")
    folder, resolved = data_folder(tmp_path / "data"), settings.resolve({}, environ, None)
    (said,) = messages.after_up(resolved, environ, folder)
    assert "still go to my prod (~/.kube/config names it)" in said
    named = {**environ, "TORCHQ_CONTEXT": "test"}
    (said,) = messages.after_up(settings.resolve({}, named, None), named, folder)
    assert "still go to test (TORCHQ_CONTEXT names it)" in said
    current_cluster.make_current(environ, folder)
    (said,) = messages.after_up(resolved, environ, folder)
    assert said == (
        f"torchq's commands now go to it (local:{folder}); "
        "for my prod of ~/.kube/config: torchq --context 'my prod' COMMAND"
    )
    named = {**environ, "KUBECONFIG": str(tmp_path / ".kube" / "config")}
    (said,) = messages.after_up(resolved, named, folder)
    assert said.startswith("torchq's commands still go to my prod (KUBECONFIG names it)")
    current_cluster.remove(environ, folder, lambda _: False)
    assert messages.after_down(resolved, environ, folder) == "torchq's commands go to my prod again (~/.kube/config)"
    named = {**environ, "KUBECONFIG": str(tmp_path / ".kube" / "config")}
    assert messages.after_down(resolved, named, folder) == "torchq's commands go to my prod: KUBECONFIG names it"
    with running(folder):
        current_cluster.make_current(environ, folder)
        assert messages.after_down(resolved, environ, folder) == f"torchq's commands go to local:{folder} again"


def test_down_says_how_the_last_cluster_and_its_history_are_reached(environ: dict[str, str], tmp_path: Path) -> None:
    resolved, own = settings.resolve({}, environ, None), data_folder(tmp_path / "my data")
    assert messages.after_down(resolved, environ, own) == (
        f"no other cluster is current: `torchq local up --data '{own}'` starts this one again; "
        f"its history: torchq --kubeconfig '{own}/kubeconfig' history"
    )
    usual = data_folder(user_folders.default_data(environ))
    assert messages.after_down(resolved, environ, usual) == (
        f"no other cluster is current: `{target.command('up', usual)}` starts this one again"
    )


def test_a_cluster_starts_while_another_process_reads_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = data_folder(tmp_path / "data")
    with (folder / "lock").open() as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        monkeypatch.setattr(looks.time, "sleep", lambda _: fcntl.flock(reader, fcntl.LOCK_UN))
        with hold_lock(Files(folder)):
            assert stack_state.supervisor_pid(folder) == os.getpid()


def test_files_of_an_earlier_supervisor_are_ignored(tmp_path: Path) -> None:
    """After kill -9 the files remain, and in a container the next supervisor may have the same process id."""
    folder = data_folder(tmp_path / "data")
    files = Files(folder)
    with hold_lock(files):
        stack_state.note_ready(files, {"node": 7})
        stale = files.ready.read_bytes().replace(b" ", b" 1")
        assert stack_state.members(folder) == {"supervisor": os.getpid(), "node": 7}
    assert stack_state.members(folder) == {}
    assert stack_state.supervisor_pid(folder) is None
    files.ready.write_bytes(stale)
    with hold_lock(files):
        assert stack_state.members(folder) == {}
        assert stack_state.supervisor_pid(folder) == os.getpid()


def test_a_lock_of_an_invisible_process_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = data_folder(tmp_path / "data")
    monkeypatch.setattr(stack_state, "_PATIENCE_SECONDS", 0.0)
    with hold_lock(Files(folder)):
        (folder / "lock").write_text(f"{os.getpid()} 1")
        with pytest.raises(LocalError, match="is not visible here"):
            stack_state.supervisor_pid(folder)
