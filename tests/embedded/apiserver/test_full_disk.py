"""The API server on a full disk refuses new objects and accepts deletions and small changes."""

import asyncio
import contextlib
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crds.api_resources import PODS, Resource
from embedded import preallocation
from embedded.apiserver.status_errors import StatusError
from embedded.apiserver.storage import disk_reserve
from embedded.apiserver.storage.disk import Disk, DiskFull, Row
from embedded.apiserver.storage.object_store import Store
from embedded.layout import Layout
from kube import client, errors
from kube.client import KubernetesCluster
from kube.settings import ConnectionSettings
from tests.support.kube.widgets import pod
from tests.support.waiting import SECONDS, patient, until

pytestmark = pytest.mark.servers

MIB = 1024 * 1024
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
LIMITED = (
    "import os, resource, sys; size = int(sys.argv[1]); "
    "size and resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)); os.execv(sys.executable, sys.argv[2:])"
)
"""A program that limits the size of its files to a number of bytes (0: no limit) and then executes its arguments."""


def manifest(name: str, size: int = 100, **more: Any) -> dict[str, Any]:
    own = {"name": name, "namespace": "n", "uid": f"uid-{name}"}
    return {"metadata": own, "text": os.urandom(size // 2).hex(), **more}


async def fill_store(store: Store) -> tuple[int, StatusError]:
    """Create objects until the store refuses an object. Return the number of objects and the refusal."""
    for made in range(10_000):
        try:
            store.put("things", manifest(f"more{made}", 50_000))
        except StatusError as refusal:
            return made, refusal
        await store.durable()
    raise AssertionError("it is never full")


def none(_: str) -> tuple[str, ...]:
    return ()


class Clock:
    """A clock that a test moves."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(disk_reserve, "time", clock)
    return clock


@contextlib.contextmanager
def no_room(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Prevent the files of the database from growing."""

    def allocate(path: Path, size: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(disk_reserve, "allocate", allocate)
        pages = disk._database.execute("PRAGMA page_count").fetchone()[0]
        disk._database.execute(f"PRAGMA max_page_count={pages}")
        yield
    disk._database.execute("PRAGMA max_page_count=1073741823")


def test_the_reserve_is_whole_after_each_growth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each growth writes megabytes and waits for the disk, so it has to last for many commits."""
    grown = []

    def allocate(path: Path, size: int) -> None:
        grown.append(path.suffix == ".room")
        preallocation.allocate(path, size)

    monkeypatch.setattr(disk_reserve, "allocate", allocate)
    disk = Disk(tmp_path / "objects.sqlite")
    growths = sum(grown)
    for number in range(240):
        disk.commit([Row("things", "n", f"t{number}", number, os.urandom(50_000))], number)
        if growths != sum(grown):
            growths = sum(grown)
            assert disk._reserve._spare >= disk_reserve._MOST_SPARE
    disk.close()
    assert growths > 1, "12 MB of objects are more than the first reserve"


def test_full_disk_accepts_deletions_and_small_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    async def story() -> None:
        disk = Disk(tmp_path / "objects.sqlite")
        store = Store(disk, none)
        for number in range(50):
            store.put("things", manifest(f"t{number}", 3000))
        store.flush()
        with no_room(disk, monkeypatch):
            made, refused = await fill_store(store)
            assert made
            assert (refused.code, refused.reason) == (507, "InsufficientStorage")
            assert f"the disk of {tmp_path} is full" in str(refused)
            for turn in range(40):  # more small changes than all objects need until their end
                for number in range(50):
                    store.put("things", manifest(f"t{number}", 3000, turn=turn))
                    await store.durable()
            large = store.get("things", "n", "t0")
            assert large
            with pytest.raises(StatusError, match="no object can be created or grow"):
                store.put("things", {**large.manifest(), "text": "x" * 20_000})
            for number in range(50):
                stored = store.get("things", "n", f"t{number}")
                assert stored
                store.remove("things", stored)
                await store.durable()
        clock.now += 1.0
        store.put("things", manifest("late"))
        await store.durable()
        assert store.get("things", "n", "late")
        disk.close()
        again = Disk(tmp_path / "objects.sqlite")
        assert {row.name for row in again.load()[1]} == {"late", *(f"more{number}" for number in range(made))}
        again.close()

    asyncio.run(story())


def test_batch_larger_than_the_disk_is_refused_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    async def story() -> None:
        disk = Disk(tmp_path / "objects.sqlite")
        store = Store(disk, none)
        with no_room(disk, monkeypatch):
            for number in range(20):
                store.put("things", manifest(f"t{number}", MIB))
            with pytest.raises(DiskFull):
                await store.durable()
            assert store.items("things") == []
            assert disk.full
        disk.close()

    asyncio.run(story())


def test_disk_space_is_reserved_at_start_and_after_growth(tmp_path: Path) -> None:
    path = tmp_path / "objects.sqlite"
    disk = Disk(path)
    assert path.stat().st_size >= 4 * MIB
    assert path.with_name("objects.sqlite-wal").stat().st_size >= 24 * MIB

    async def grow() -> None:
        store = Store(disk, none)
        for number in range(40):
            store.put("things", manifest(f"t{number}", MIB // 4))
            await store.durable()
            free, size = (disk._database.execute(f"PRAGMA {what}").fetchone()[0] for what in
                          ("freelist_count", "page_size"))  # fmt: skip
            assert free * size >= 2 * MIB - MIB // 2

    asyncio.run(grow())
    disk.close()


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL])
def test_file_system_without_allocation_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def cannot(*_: int) -> None:
        raise OSError(code, "not here")

    monkeypatch.setattr(preallocation.os, "posix_fallocate", cannot)
    disk = Disk(tmp_path / "objects.sqlite")
    assert not disk.full
    assert (tmp_path / "objects.sqlite-wal").stat().st_size >= 24 * MIB
    disk.close()


# A complete server with a limit on the size of its files.


@contextlib.contextmanager
def process(folder: Path, longest: int = 0) -> Iterator[KubernetesCluster]:
    """Run an API server whose files cannot grow beyond `longest` bytes; 0 means no limit."""
    layout = Layout(folder)
    command = [sys.executable, "-m", "embedded.apiserver.api_server", "--data", str(folder)]
    server = subprocess.Popen([sys.executable, "-c", LIMITED, str(longest), *command], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        assert b"ready" in server.stdout.readline()
        connected = client.connect(ConnectionSettings(kubeconfig=str(layout.kubeconfig)))
        yield connected
        connected.close()
    finally:
        server.terminate()
        server.wait(patient(SECONDS))
        assert server.stdout is not None
        server.stdout.close()


def fill(cluster: KubernetesCluster, most: int = 400) -> str:
    """Create objects until the server refuses an object. Return the message of the refusal."""
    for number in range(most):
        try:
            cluster.create(CONFIGMAPS, {"metadata": {"name": f"c{number}"}, "data": {"text": "x" * 500_000}}, "default")
        except errors.ServerError as error:
            return str(error)
    raise AssertionError("it is never full")


def test_new_server_on_a_full_disk_exits_with_a_one_line_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "embedded.apiserver.api_server", "--data", str(tmp_path / "data")]
    words = [sys.executable, "-c", LIMITED, str(MIB), *command]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=patient(SECONDS), check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"the disk of {tmp_path / 'data'} is full")
    assert "Traceback" not in ended.stderr


def test_server_on_a_full_disk_accepts_status_changes_and_deletions(tmp_path: Path) -> None:
    with process(tmp_path / "data", 25 * MIB) as cluster:
        cluster.create(PODS, pod(), "default")
        said = fill(cluster)
        assert f"the disk of {tmp_path / 'data'} is full" in said
        with pytest.raises(errors.ServerError, match="is full"):
            cluster.create(PODS, pod("other"), "default")
        cluster.patch(PODS, "p", {"status": {"phase": "Failed"}}, "default", subresource="status")
        cluster.patch(PODS, "p", {"metadata": {"annotations": {"a": "b"}}}, "default")
        cluster.delete(PODS, "p", "default")
        with pytest.raises(errors.NotFound):
            cluster.get(PODS, "p", "default")
    with process(tmp_path / "data") as cluster:
        cluster.create(PODS, pod(), "default")
        assert len(cluster.list(CONFIGMAPS, "default").items) > 1


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 64 MiB. Skip the test if this user may not mount file systems."""
    mount = shutil.which("mount")
    folder = tmp_path / "small"
    folder.mkdir()
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)]
    if mount is None or os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("needs to mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_server_survives_a_file_system_filled_by_another_process(small: Path) -> None:
    with process(small / "data") as cluster:
        for number in range(20):
            cluster.create(PODS, pod(f"p{number}"), "default")
        filler = small / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(65_536))
        with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        assert shutil.disk_usage(small).free < 8192
        for turn in range(30):
            for number in range(20):
                annotations = {"metadata": {"annotations": {"turn": f"{turn}" * 100}}}
                cluster.patch(PODS, f"p{number}", annotations, "default")
        assert "is full" in fill(cluster)
        for number in range(20):
            cluster.delete(PODS, f"p{number}", "default")
        assert not cluster.list(PODS, "default").items
        filler.unlink()
        until(lambda: created(cluster, "after"))


def created(cluster: KubernetesCluster, name: str) -> bool:
    try:
        cluster.create(PODS, pod(name), "default")
    except errors.ServerError:
        return False
    return True
