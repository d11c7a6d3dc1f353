"""The files of jobs in the data folder: how large they are, and which of them are old."""

import os
from pathlib import Path

from coordinator.local import job_files
from crds.keys import JobKey
from embedded import job_logs
from embedded.layout import Layout

NOW = 1_700_000_000.0
DAY = 86_400.0


def write(folder: Path, days: float, text: str = "12345") -> None:
    """Write a file in a folder. The file and the folder are `days` days old."""
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "file").write_text(text)
    for path in (folder / "deep" / "file", folder / "deep", folder):
        os.utime(path, (NOW - days * DAY,) * 2)


def test_old_folders_are_found_but_those_of_unfinished_jobs_with_models_and_with_newer_files(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    roots = (layout.outputs, layout.job_logs)
    jobs = {name: JobKey("team", name, f"uid-{name}") for name in ("old", "new", "waits", "touched", "trained")}
    for name, days in (("old", 40), ("new", 3), ("waits", 40), ("touched", 40), ("trained", 40)):
        write(layout.output(jobs[name]), days)
    os.utime(layout.output(jobs["touched"]) / "deep" / "file", (NOW - DAY,) * 2)
    gone, present = (layout.logs_of_job(jobs["old"]) / pod for pod in ("pod-1", "pod-2"))
    write(gone / job_logs.RUNS, 40, "123")
    write(present, 40, "the record of a pod whose log is elsewhere")
    os.utime(gone, (NOW - 40 * DAY,) * 2)
    models = ["", "team/trained-uid-trained/model", "other/old-uid-old/model"]
    found = job_files.find_old(roots, NOW - 30 * DAY, ["uid-waits"], models)
    assert [(folder.path, folder.size) for folder in found] == [
        (layout.output(jobs["old"]), 5),
        (gone, 3),
    ]
    assert [job_files.measure(root) for root in roots] == [25, 3]
    for folder in found:
        job_files.remove(folder)
    assert not job_files.find_old(roots, NOW - 30 * DAY, ["uid-waits"], models)
    assert [job_files.measure(root) for root in roots] == [20, 0]
    assert present.exists()
