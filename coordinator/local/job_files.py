"""The files of jobs in the data folder of a cluster: their outputs, and the logs of their pods that are gone.

One rule: nothing of a job that has not finished is removed, nothing that was written to since the given time, and no
outputs with files of a ModelVersion, or of a model that an unfinished job reads.
"""

import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

OUTPUTS = "outputs"
"""The folder in the data folder of a cluster that has the outputs of all jobs, as the node names it."""
LOGS, RUNS = "job-logs", "runs"
"""The folder with logs in the data folder, and that of a pod that is gone, as the node names them."""


@dataclass(frozen=True, slots=True)
class JobFolder:
    """A folder with files of one job: its outputs, or the logs of one of its pods that is gone."""

    path: Path
    job: str
    """The name of the job's folder, which ends with the uid of the job."""
    size: int
    """The bytes of its files."""
    newest: float
    """When something in it was last written, in seconds since the epoch."""


def measure(root: Path) -> int:
    """Return the bytes of all folders below a folder that has a folder for each namespace."""
    return sum(folder.size for folder in _folders(root))


def find_old(roots: Iterable[Path], before: float, kept: Collection[str], models: Iterable[str]) -> list[JobFolder]:
    """Return the folders in which nothing was written since a time, without those of some jobs, given by uid, and
    without the outputs that have models at these paths among the outputs of all jobs."""
    with_models = {tuple(path.split("/")[:2]) for path in models}
    return [
        folder
        for root in roots
        for folder in _folders(root)
        if folder.newest < before
        and not folder.job.endswith(tuple(f"-{uid}" for uid in kept))
        and not (root.name == OUTPUTS and folder.path.parts[-2:] in with_models)
    ]


def remove(folder: JobFolder) -> None:
    """Remove a folder. Raises OSError if a part of the folder stays."""
    shutil.rmtree(folder.path)


def _folders(root: Path) -> Iterator[JobFolder]:
    """Yield the folders of jobs; for logs, the folders of pods. A pod that is not gone has no runs there, only a record
    by which its log is found.
    """
    for job in sorted(root.glob("*/*")):
        kept = sorted(runs.parent for runs in job.glob(f"*/{RUNS}"))
        for path in kept if root.name == LOGS else [job]:
            if path.is_dir() and not job.is_symlink():
                yield _measure(path, job.name)


def _measure(path: Path, job: str) -> JobFolder:
    size, newest = 0, path.stat().st_mtime
    for folder, names, files in os.walk(path):
        for name in (*names, *files):
            try:
                found = os.lstat(os.path.join(folder, name))
            except FileNotFoundError:
                continue  # its job is writing
            size += found.st_size if name in files else 0
            newest = max(newest, found.st_mtime)
    return JobFolder(path, job, size, newest)
