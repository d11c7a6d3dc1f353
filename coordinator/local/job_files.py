"""The files of jobs in the data folder of a cluster: their outputs, and the logs of their pods that are gone.

One rule: nothing of a job that has not finished is removed, and nothing that was written to since the given time.
"""

import os
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from embedded.layout import Layout


@dataclass(frozen=True, slots=True)
class JobFolder:
    """A folder with files of one job."""

    path: Path
    size: int
    """The bytes of its files."""
    newest: float
    """When something in it was last written, in seconds since the epoch."""


def sizes(layout: Layout) -> dict[str, int]:
    """Return the bytes of all outputs and of all kept logs."""
    return {
        name: sum(folder.size for folder in _folders(root))
        for name, root in (("outputs", layout.outputs), ("logs", layout.job_logs))
    }


def find_old(layout: Layout, before: float, unfinished: Collection[str]) -> list[JobFolder]:
    """Return the folders in which nothing was written since a time, without those of unfinished jobs, given by uid."""
    return [
        folder
        for root in (layout.outputs, layout.job_logs)
        for folder in _folders(root)
        if folder.newest < before and not folder.path.name.endswith(tuple(f"-{uid}" for uid in unfinished))
    ]


def remove(folder: JobFolder) -> None:
    """Remove a folder. Raises OSError if some of it stays."""
    shutil.rmtree(folder.path)


def _folders(root: Path) -> Iterator[JobFolder]:
    for path in sorted(root.glob("*/*")):
        if path.is_dir() and not path.is_symlink():
            yield _measure(path)


def _measure(path: Path) -> JobFolder:
    size, newest = 0, path.stat().st_mtime
    for folder, names, files in os.walk(path):
        for name in (*names, *files):
            try:
                found = os.lstat(os.path.join(folder, name))
            except FileNotFoundError:
                continue  # its job is writing
            size += found.st_size if name in files else 0
            newest = max(newest, found.st_mtime)
    return JobFolder(path, size, newest)
