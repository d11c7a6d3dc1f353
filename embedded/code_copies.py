"""The files that a TorchJob's first pod has written beside its code, in a folder that is deleted with the pod.

One rule: a file is new if it was written after the code was unpacked. Of all pods of a job, the last copy with new
files is kept when its pod is removed, with the logs of that pod and for as long as these.

    pods/POD-UID/volumes/torchq-code                            the copy of a pod that exists
    job-logs/NAMESPACE/JOB-JOB-UID/POD-UID/copy                 that of a pod that is gone
"""

import logging
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from crds.keys import JobKey
from embedded import job_logs
from embedded.job_logs import PodRecord
from embedded.layout import Layout

logger = logging.getLogger(__name__)

VOLUME = "torchq-code"
MARK = ".torchq-unpacked"
"""The file that is written last when the code is unpacked (`coordinator/code/unpack.py`)."""
COPY = "copy"
MOST_FILES = 10_000
"""The most files and folders that are looked at in one copy."""
_MASTER, _WORKER = "master", "worker"
_NOT_OF_USERS = {"__pycache__", ".torchq", MARK}


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that was written beside the code; its path is relative to the copy."""

    path: str
    bytes: int


@dataclass(frozen=True, slots=True)
class CodeCopy:
    """The copy of the code of one pod, and the new files in the copy."""

    folder: Path
    files: tuple[NewFile, ...]


def find(layout: Layout, job: JobKey) -> CodeCopy | None:
    """Return the last copy of a job's rank 0 with new files; None if there is no such copy."""
    found = list(_copies(layout, job))
    lead = _MASTER if any(record.task == _MASTER for record, _ in found) else _WORKER
    copies = (CodeCopy(folder, tuple(_new_files(folder))) for record, folder in found if record.task == lead)
    return max((copy for copy in copies if copy.files), key=lambda copy: _unpacked_at(copy.folder), default=None)


def keep(layout: Layout, record: PodRecord) -> None:
    """Keep the copy of a pod whose folder is about to be removed, in place of the copy of an earlier pod."""
    source = layout.volume(record.pod_uid, VOLUME)
    if not _is_first(record) or next(_new_files(source), None) is None:
        return
    pods = layout.logs_of_job(record.key)
    try:
        source.rename(pods / record.pod_uid / COPY)
    except OSError as e:
        logger.warning("the files of pod %s/%s are not kept: %s", record.namespace, record.pod, e)
        return
    for other, folder in _copies(layout, record.key):
        if other.task == record.task and folder == pods / other.pod_uid / COPY and other.pod_uid != record.pod_uid:
            shutil.rmtree(folder, ignore_errors=True)


def _copies(layout: Layout, job: JobKey) -> Iterator[tuple[PodRecord, Path]]:
    for pod in layout.logs_of_job(job).glob("*"):
        record = job_logs.read_record(pod / job_logs.RECORD_OF_JOB)
        if record is not None and _is_first(record):
            yield record, layout.volume(record.pod_uid, VOLUME)
            yield record, pod / COPY


def _is_first(record: PodRecord) -> bool:
    return record.index == 0 and record.task in (_MASTER, _WORKER)


def _unpacked_at(folder: Path) -> float:
    with suppress(OSError):
        return (folder / MARK).stat().st_mtime
    return float("inf")


def _new_files(folder: Path) -> Iterator[NewFile]:
    """Yield the new files of a copy, without the files that a bound leaves out."""
    since, left = _unpacked_at(folder), MOST_FILES
    for path, names, files in os.walk(folder):
        names[:] = [name for name in names if name not in _NOT_OF_USERS]
        for name in files:
            with suppress(OSError):
                found = os.lstat(os.path.join(path, name))
                if found.st_mtime > since and name not in _NOT_OF_USERS and stat.S_ISREG(found.st_mode):
                    place = os.fsencode(os.path.relpath(os.path.join(path, name), folder))
                    # JSON has text: bytes that are not UTF-8 are written as `\\xff`.
                    yield NewFile(place.decode("utf-8", "backslashreplace"), found.st_size)
        left -= len(names) + len(files)
        if left < 0:
            return
