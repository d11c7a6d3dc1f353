"""The log of a container: bounded in size, split into files, and read as one text while files are added and removed."""

import os
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from crds.api_resources import PODS
from embedded import log_files, log_times, log_writer
from embedded.apiserver import api_server as apiserver
from embedded.layout import Layout
from embedded.log_files import LogReader
from embedded.log_times import LogTimes
from embedded.log_writer import LogWriter
from embedded.node.node import running_node
from kube import client
from kube.settings import ConnectionSettings
from tests.support.embedded.stage import SETTINGS, Stage, terminated
from tests.support.kube.servers import Server
from tests.support.waiting import patient, until

KIB = 1024
BOUND = 256 * KIB


def kept(folder: Path) -> int:
    sizes = 0
    for file in folder.glob("*/output*"):
        with suppress(FileNotFoundError):
            sizes += file.stat().st_size
    return sizes


def text(folder: Path, position: int = 0) -> bytes:
    return b"".join(log_files.pieces(folder, position))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Yield a cluster whose node keeps only short container logs."""
    layout = Layout(tmp_path_factory.mktemp("cluster"))
    with apiserver.running(layout) as server:
        cluster = client.connect(ConnectionSettings(kubeconfig=str(server.kubeconfig)))
        try:
            with running_node(cluster, layout, replace(SETTINGS, log_bytes=BOUND)):
                yield Stage(cluster, layout, server.kubeconfig)
        finally:
            cluster.close()


# Writing of log files


@given(st.lists(st.binary(max_size=300) | st.just(b"a line\n"), max_size=60), st.integers(400, 3000))
def test_a_bounded_log_keeps_the_end_of_the_output(tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes],
                                                     most: int) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("c") / "0"
    folder.mkdir()
    writer = LogWriter(str(folder), most + 512)
    assert writer.open() == ""
    for piece in pieces:
        writer.write(piece)
        assert kept(folder.parent) <= most + 512
    whole = b"".join(pieces)
    start, end = log_files.span(folder)
    assert end == len(whole)
    assert text(folder) == whole[start:]
    assert len(whole) - start >= min(len(whole), 3 * (most // 4) - 300)


def test_every_log_file_begins_with_a_whole_line(tmp_path: Path) -> None:
    folder = tmp_path / "0"
    folder.mkdir()
    writer = LogWriter(str(folder), 4000)
    writer.open()
    for number in range(2000):
        writer.write(b"line %d\n" % number)
    for file in log_files.files(folder):
        assert Path(file.path).read_bytes().startswith(b"line ")


def test_the_log_bound_covers_all_runs_of_a_container(tmp_path: Path) -> None:
    for run in range(3):
        folder = tmp_path / str(run)
        folder.mkdir()
        writer = LogWriter(str(folder), 8000)
        writer.open()
        for number in range(300):
            writer.write(b"run %d line %d\n" % (run, number))
        assert kept(tmp_path) <= 8000
    assert text(tmp_path / "2").endswith(b"run 2 line 299\n")
    assert not log_files.files(tmp_path / "0")


def test_small_logs_of_earlier_runs_are_kept(tmp_path: Path) -> None:
    for run in range(3):
        (tmp_path / str(run)).mkdir()
        writer = LogWriter(str(tmp_path / str(run)), 8000)
        writer.open()
        writer.write(b"run %d\n" % run)
    assert [text(tmp_path / str(run)) for run in range(3)] == [b"run 0\n", b"run 1\n", b"run 2\n"]


def test_the_log_counts_the_bytes_lost_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "0"
    folder.mkdir()
    writer = LogWriter(str(folder), 8000)
    writer.open()
    writer.write(b"before\nhalf a ")
    real = os.write

    def full(descriptor: int, piece: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(log_writer.os, "write", full)
    writer.write(b"line\n")
    writer.write(b"x" * 5000)
    monkeypatch.setattr(log_writer.os, "write", real)
    writer.write(b"after\n")
    assert text(folder) == b"before\nhalf a \n[torchq: 5005 bytes of output are lost: the disk was full]\nafter\n"


# Reading of log files


def test_a_reader_returns_every_byte_once_while_new_files_begin(tmp_path: Path) -> None:
    folder = tmp_path / "0"
    folder.mkdir()
    writer = LogWriter(str(folder), 4000)
    writer.open()
    reader, seen = LogReader(folder, 0), b""
    for number in range(3000):
        writer.write(b"line %d\n" % number)
        if number % 7 == 0:
            while piece := reader.read(100):
                seen += piece
    while piece := reader.read(100):
        seen += piece
    reader.close()
    assert seen == b"".join(b"line %d\n" % number for number in range(3000))


def test_a_reader_returns_bytes_written_while_it_lists_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "output").write_bytes(b"one\n")
    reader = LogReader(tmp_path, 0)
    assert reader.read() == b"one\n"
    look = log_files.files

    def late(folder: str | Path) -> list[log_files.LogFile]:
        if not (tmp_path / "output.8").exists():
            with (tmp_path / "output").open("ab") as file:
                file.write(b"two\n")
            (tmp_path / "output.8").write_bytes(b"three\n")
        return look(folder)

    monkeypatch.setattr(log_files, "files", late)
    assert [reader.read(), reader.read(), reader.read()] == [b"two\n", b"three\n", b""]
    reader.close()


def test_a_slow_reader_skips_removed_output_and_continues(tmp_path: Path) -> None:
    folder = tmp_path / "0"
    folder.mkdir()
    writer = LogWriter(str(folder), 4000)
    writer.open()
    writer.write(b"first\n")
    reader = LogReader(folder, 0)
    assert reader.read(3) == b"fir"
    for number in range(3000):
        writer.write(b"line %d\n" % number)
    seen = b""
    while piece := reader.read(100):
        seen += piece
    reader.close()
    assert seen.endswith(b"line 2999\n")
    assert reader.position == log_files.span(folder)[1]
    assert seen.count(b"line 2999\n") == 1


@given(st.lists(st.sampled_from([b"a\n", b"bb\n", b"\n", b"no end"]), min_size=1, max_size=40), st.integers(0, 45))
def test_tail_start_finds_the_last_lines_over_files(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes],
                                         count: int) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("c")
    whole, start = b"".join(lines), 0
    for index, line in enumerate(lines):
        if line and index % 3 == 0:
            (folder / log_writer.name_of(start)).write_bytes(b"".join(lines[index : index + 3]))
        start += len(line)
    expected = b"".join(whole.splitlines(keepends=True)[-count:]) if count else b""
    assert text(folder, log_files.tail_start(folder, count)) == expected


def test_the_record_of_log_times_is_bounded_and_survives_a_full_disk(tmp_path: Path) -> None:
    log, times, known = tmp_path / "output", tmp_path / "times", 0
    for second in range(20_000):
        with log.open("ab") as file:
            file.write(b"x" * 10)
        known = log_times.note(str(tmp_path), 1_000_000.0 + second, known)
        if second == 10:
            times.write_bytes(times.read_bytes()[:-9])  # a full disk has cut the last note in half
    assert times.stat().st_size < 600 * KIB
    found = LogTimes(tmp_path)
    assert found.of(10 * 19_999) == 1_000_000.0 + 19_999
    assert 1_000_000.0 <= found.of(0) < 1_000_010.0


# Pods on a node


def test_the_log_of_a_container_that_prints_fast_stays_within_the_bound(small: Stage) -> None:
    name = small.run("sh", "-c", "yes a line that is printed again and again | head -c 50000000; echo the end")
    folder = small.folder(name) / "containers" / "c0"
    seen = []
    while small.status(name).get("phase") not in ("Succeeded", "Failed"):
        seen.append(kept(folder))
        time.sleep(0.001)
    assert small.status(name)["phase"] == "Succeeded"
    assert max(seen) <= BOUND
    assert kept(folder) > BOUND // 2
    log = small.log(name)
    assert log.endswith("the end\n")
    first, second = log.splitlines()[:2]
    assert first.startswith("[torchq: ")
    assert first.endswith("bytes of older output were removed: see container-log-max-size]")
    assert second == "a line that is printed again and again"


def test_following_a_log_returns_each_line_once_across_rotations(small: Stage) -> None:
    script = (
        "import os, time\n"
        "for batch in range(10):\n"
        "    while not os.path.exists(os.environ['TORCHQ_VOLUME_V'] + f'/{batch}'): time.sleep(0.005)\n"
        "    for number in range(4000): print('line', 4000 * batch + number, 'of many', flush=number % 7 == 0)\n"
        "    print(end='', flush=True)\n"
    )
    name = small.run("python", "-c", script, volumes=[{"name": "v", "emptyDir": {}}])
    small.phase(name, "Running")
    found: list[bytes] = []
    follower = threading.Thread(target=lambda: found.extend(small.cluster.logs(name, "default", follow=True)))
    follower.start()
    # Each batch is shorter than the bound of the log, and the follower reads each batch before the next batch begins.
    for batch in range(10):
        (small.folder(name) / "volumes" / "v" / str(batch)).touch()
        until(lambda batch=batch: b"line %d of many" % (4000 * batch + 3999) in b"".join(found[-9:]))
    follower.join(patient())
    assert not follower.is_alive()
    assert b"".join(found).decode().splitlines() == [f"line {number} of many" for number in range(40_000)]
    assert len(log_files.files(small.folder(name) / "containers" / "c0" / "0")) > 1
    assert kept(small.folder(name) / "containers" / "c0") <= BOUND


def test_log_options_apply_to_a_rotated_log(small: Stage) -> None:
    url = yaml.safe_load(small.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    tls = ssl.create_default_context(cafile=small.layout.certificate("ca"))
    server = Server("embedded", url, small.layout.token.read_text().strip(), small.kubeconfig, tls)
    name = small.run("sh", "-c", "i=0; while [ $i -lt 40000 ]; do i=$((i+1)); echo line $i; done")
    small.phase(name, "Succeeded")

    def log(**query: object) -> str:
        words = "&".join(f"{key}={value}" for key, value in query.items())
        code, text = server.send("GET", f"{PODS.path('default', name, 'log')}?{words}")
        assert code == 200
        return str(text)

    assert log(tailLines=3) == "line 39998\nline 39999\nline 40000\n"
    assert log(tailLines=10_000).splitlines() == [f"line {number}" for number in range(30_001, 40_001)]
    assert log(sinceSeconds=600).splitlines()[0].startswith("[torchq: ")
    assert log(sinceSeconds=600).splitlines()[-1] == "line 40000"
    assert len(log(limitBytes=1000)) == 1000
    stamped = log(timestamps="true", tailLines=2).splitlines()
    assert [line.split(" ", 1)[1] for line in stamped] == ["line 39999", "line 40000"]


def test_output_left_in_the_pipe_by_a_killed_container_is_logged(small: Stage) -> None:
    name = small.run("python", "-c", "import os, signal; print('x' * 60000 + 'y', flush=True); os.kill(os.getpid(), 9)")
    assert terminated(small.phase(name, "Failed"))["exitCode"] == 137
    assert small.log(name) == "x" * 60_000 + "y\n"


def test_a_daemon_that_keeps_printing_ends_with_its_container(small: Stage) -> None:
    name = small.run("sh", "-c", "setsid sh -c 'while :; do echo noise; done' & sleep 0.2; echo done; exit 3")
    assert terminated(small.phase(name, "Failed"))["exitCode"] == 3
    assert "done" in small.log(name)


def test_a_later_run_removes_the_log_of_the_run_before(small: Stage) -> None:
    script = 'if [ -e "$TORCHQ_VOLUME_V/once" ]; then yes second | head -c 3000000; exit 0; fi; ' \
             'touch "$TORCHQ_VOLUME_V/once"; echo first; exit 1'  # fmt: skip
    name = small.run("sh", "-c", script, policy="OnFailure", volumes=[{"name": "v", "emptyDir": {}}])
    small.phase(name, "Succeeded")
    runs = small.folder(name) / "containers" / "c0"
    until(lambda: kept(runs), lambda size: size <= BOUND)
    assert not log_files.files(runs / "0")
    assert (runs / "0" / "started").exists()
