"""The files that a job has written beside its code: which files are new, and which of them stay when pods are gone."""

import os
from pathlib import Path

import pytest

from coordinator.code import stores, unpack
from crds.keys import JobKey
from embedded import code_copies, job_logs
from embedded.job_logs import PodRecord
from embedded.layout import Layout
from embedded.node.pods.kept_logs import KeptLogs

JOB = JobKey("ns", "train", "job-uid")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


def make(layout: Layout, uid: str, *files: str, task: str = "master", index: int = 0, at: float = 1000.0) -> Path:
    """Make the copy of the code for a pod. The code was unpacked at the time `at`, and `files` were written a second
    later.
    """
    record = PodRecord(JOB.namespace, JOB.name, JOB.uid, f"train-{task}-{index}", uid, task, index, 1, 0, ())
    for folder, name in (
        (layout.logs_of_job(JOB) / uid, job_logs.RECORD_OF_JOB),
        (layout.pod(uid), job_logs.RECORD_OF_POD),
    ):
        folder.mkdir(parents=True)
        (folder / name).write_text(record.text())
    copy = layout.volume(uid, code_copies.VOLUME)
    copy.mkdir(parents=True)
    for name in ("train.py", code_copies.MARK, *files):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text("x" * len(name))
        os.utime(copy / name, (at, at + (name in files)))
    return copy


def new(layout: Layout) -> list[str]:
    found = code_copies.find(layout, JOB)
    return sorted(each.path for each in found.files) if found is not None else []


def test_the_names_are_those_of_the_code() -> None:
    assert (code_copies.VOLUME, code_copies.MARK) == (stores.CODE_VOLUME, unpack.MARK)


def test_new_files_are_those_after_the_code_without_what_python_and_torchq_write(layout: Layout) -> None:
    assert new(layout) == []
    copy = make(layout, "u1", "checkpoints/last.pt", "__pycache__/a.pyc", ".torchq/torchq/__init__.py")
    assert new(layout) == ["checkpoints/last.pt"]
    (copy / "train.py").write_text("changed")
    assert new(layout) == ["checkpoints/last.pt", "train.py"]


def test_file_whose_name_is_not_utf8_hides_no_other_one_and_pipes_are_no_files(layout: Layout) -> None:
    copy = make(layout, "u1", "checkpoints/last.pt")
    with open(os.fsencode(copy) + b"/bad\xff", "w"):
        pass
    os.mkfifo(copy / "pipe")
    assert new(layout) == ["bad\\xff", "checkpoints/last.pt"]


def test_rank_0_is_the_master_and_without_one_the_first_worker(layout: Layout) -> None:
    make(layout, "u1", "a", task="worker", index=1)
    assert new(layout) == []
    make(layout, "u2", "b", task="worker")
    assert new(layout) == ["b"]
    make(layout, "u3", task="master")
    assert new(layout) == []


def test_the_last_copy_with_new_files_is_kept_as_long_as_its_logs(layout: Layout) -> None:
    kept = KeptLogs(layout)
    make(layout, "u1", "first.pt")
    kept.keep("u1")
    assert not layout.volume("u1", code_copies.VOLUME).exists()
    assert new(layout) == ["first.pt"]
    make(layout, "u2", at=2000.0)
    kept.keep("u2")
    assert new(layout) == ["first.pt"]
    make(layout, "u3", "third.pt", at=3000.0)
    assert new(layout) == ["third.pt"]
    kept.keep("u3")
    assert new(layout) == ["third.pt"]
    assert [each.parent.name for each in layout.logs_of_job(JOB).glob(f"*/{code_copies.COPY}")] == ["u3"]


def test_the_logs_of_a_job_do_not_go_because_of_its_files(layout: Layout) -> None:
    copy = make(layout, "u1")
    with (copy / "large.pt").open("wb") as file:
        file.truncate(2 * 1024**3)
    KeptLogs(layout).keep("u1")
    assert new(layout) == ["large.pt"]
