"""Keeps the ends of the logs of TorchJobs' pods when the node removes these pods.

One rule: the pod's folder is removed only after its logs are kept whole, in one step, so that a reader finds them at
any moment. No logs are kept of a job whose folder the API server has removed, because the job was deleted.
"""

import logging
import os
import shutil
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from embedded import code_copies, job_logs, log_files, log_times, log_writer
from embedded.layout import Layout
from embedded.node.runs import shim
from embedded.pod import LocalPod

logger = logging.getLogger(__name__)

_MIB = 1024 * 1024
_DRAFT = ".draft"
_BLOCK = 4096
"""The disk space of the smallest file and of a folder."""


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The bounds of kept logs, in bytes. Files count in whole blocks of the disk."""

    run: int = _MIB
    """The end of the output of one run."""
    job: int = 64 * _MIB
    """All pods of one job together."""
    total: int = 512 * _MIB


class KeptLogs:
    """The logs of pods that are gone. Only one thread may call its methods."""

    def __init__(self, layout: Layout, bounds: LogBounds | None = None) -> None:
        self._layout = layout
        self._bounds = bounds or LogBounds()
        self._sizes: dict[Path, int] | None = None
        """The size of each pod's kept logs, by their folder, oldest first; None before the first pod is kept."""

    def register(self, pod: LocalPod) -> None:
        """Write to disk which job a pod belongs to, before its first container starts. Raise OSError on failure."""
        record = job_logs.record_of(pod)
        if record is None or (self._layout.pod(pod.uid) / job_logs.RECORD_OF_POD).exists():
            return
        folder = self._layout.logs_of_job(record.key) / pod.uid
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        shim.write(str(folder), job_logs.RECORD_OF_JOB, record.text())
        shim.write(str(self._layout.pod(pod.uid)), job_logs.RECORD_OF_POD, record.text())

    def keep(self, uid: str) -> None:
        """Keep the ends of the logs of a pod that no longer exists. If the machine refuses, they are lost."""
        record = job_logs.read_record(self._layout.pod(uid) / job_logs.RECORD_OF_POD)
        if record is None:
            return
        folder = self._layout.logs_of_job(record.key) / uid
        try:
            if folder.exists() and not (folder / job_logs.RUNS).exists():
                code_copies.keep(self._layout, record)
                _copy_runs(self._layout.containers(uid), folder, self._bounds.run)
                self._account(folder)
        except OSError as e:
            logger.warning("the logs of pod %s/%s are not kept: %s", record.namespace, record.pod, e)

    def _account(self, folder: Path) -> None:
        """Remember the size of the logs that were kept last, and remove the oldest logs beyond the bounds."""
        if self._sizes is None:
            self._sizes = {kept: _size(kept) for kept in _kept_folders(self._layout.job_logs)}
        self._sizes[folder] = _size(folder)
        self._trim([kept for kept in self._sizes if kept.parent == folder.parent], self._bounds.job)
        self._trim(list(self._sizes), self._bounds.total)

    def _trim(self, folders: list[Path], most: int) -> None:
        """Remove the first of these folders until the other folders are an eighth below the bound."""
        assert self._sizes is not None
        if sum(self._sizes[folder] for folder in folders) <= most:
            return
        for folder in folders:
            if not folder.exists():  # its job was deleted
                del self._sizes[folder]
        left = [folder for folder in folders if folder in self._sizes]
        size = sum(self._sizes[folder] for folder in left)
        for folder in left if size > most else ():
            if size <= most - most // 8:
                return
            size -= self._sizes.pop(folder)
            shutil.rmtree(folder, ignore_errors=True)


def _kept_folders(root: Path) -> list[Path]:
    """Return the folders of pods that are gone, oldest first."""
    times: Counter[Path] = Counter()
    for runs in root.glob(f"*/*/*/{job_logs.RUNS}"):
        with suppress(FileNotFoundError):
            times[runs.parent] = int(runs.stat().st_mtime_ns)
    return sorted(times, key=lambda folder: times[folder])


def _copy_runs(containers: Path, folder: Path, most: int) -> None:
    """Copy all runs of a pod into the folder of its kept logs, in one step."""
    draft = folder / _DRAFT
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    for run in containers.glob("*/*"):
        if run.name.isdecimal():
            _copy_run(run, draft / run.parent.name / run.name, most)
    draft.rename(folder / job_logs.RUNS)


def _copy_run(run: Path, target: Path, most: int) -> None:
    target.mkdir(parents=True, mode=0o700)
    for name in ("started", "exited"):
        with suppress(FileNotFoundError):
            shutil.copyfile(run / name, target / name)
    try:
        start, end = log_files.span(run)
        written_at = log_files.modification_time(run)
    except FileNotFoundError:
        return
    position = max(start, end - most)
    line = log_files.line_start(run, position)
    position = line if line < end else position
    copy = target / log_writer.name_of(position)
    with copy.open("wb") as file:
        for piece in log_files.pieces(run, position):
            file.write(piece)
    os.utime(copy, (written_at, written_at))
    log_times.copy_notes(run, target, position)


def _size(folder: Path) -> int:
    """Return the disk space of kept logs, roughly. Files of the job that are kept with them do not make logs go."""
    size = 0
    for path in (folder / job_logs.RUNS).rglob("*"):
        with suppress(OSError):
            size += -(-max(1, path.stat().st_size) // _BLOCK) * _BLOCK
    return size + _BLOCK
