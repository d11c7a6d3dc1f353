"""`torchq.model`: the folder for the model that the job trains, and those of models that the job reads.

One rule: the files are counted by rank 0 when its process ends, and never while it trains. What cannot be counted is
recorded without a digest; nothing raises then, because the training is done.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import logging
import os
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from torchq._errors import NotFound, Refused
from torchq._training import end_message, outputs, surroundings

log = logging.getLogger("torchq")
FOLDER = "model"
MOST_BYTES = 10 * 1024**3
"""The most bytes that are hashed without being asked for: some 30 seconds."""
_CHUNK = 1024 * 1024
_lock = threading.Lock()
_digest: dict[Path, bool | None] = {}
"""The folders that are counted at the end of this process, each with the wish for a digest."""


def model(name: str = "", *, digest: bool | None = None) -> Path:
    """Return the folder where the model of this job belongs, or with a name the folder of a model that the job reads.

    The folder of the job's own model is `model` in the folder of `torchq.output()`, and exists. All pods of the job
    share it, through restarts. A job with torchq.run(..., model=NAME) that succeeds makes a version of the model, which
    `torchq model list` shows. When the process of rank 0 ends, the files are counted and get a digest; those of more
    than 10 GB get a digest only with `digest=True`. Outside a job it is the folder outputs/model.

    A model that the job reads is one of torchq.run(..., with_models=[NAME]). Its files must not be changed.

    Raises Refused in a job that has no such model, and NotFound if its files were deleted.
    """
    if name:
        return _read(name)
    named = os.environ.get(surroundings.MODEL)
    if not named and surroundings.is_in_job(os.environ):
        raise Refused(
            "this job has no model: name one with torchq.run(..., model=NAME), with `torchq run --model NAME`, or in "
            "spec.modelOutput.modelName of the TorchJob; on Kubernetes the job also needs outputs"
        )
    folder = outputs.create(Path(named) if named else outputs.output() / FOLDER)
    if named and surroundings.is_rank_zero(os.environ):
        _count_at_end(folder, digest)
    return folder


def _read(name: str) -> Path:
    variable = surroundings.MODEL_INPUT + name.upper().replace("-", "_")
    named = os.environ.get(variable)
    if not named:
        raise Refused(
            f"this program reads no model {name}: name it with torchq.run(..., with_models=[{name!r}]) or `torchq run "
            f"--with-model {name}`; outside a job, {variable} names the folder (torchq model path {name})"
        )
    folder = Path(named)
    if not folder.is_dir() or not any(folder.iterdir()):
        raise NotFound(f"model {name}: its files were deleted, {folder} is empty")
    return folder


def _count_at_end(folder: Path, digest: bool | None) -> None:
    """Let the files of a folder be counted when this process ends."""
    with _lock:
        if not _digest:
            atexit.register(_tell_all)
        _digest[folder] = _digest.get(folder) if digest is None else digest


def _tell_all() -> None:
    path = os.environ.get(surroundings.RESULT_FILE)
    if not path or getattr(sys, "last_value", None) is not None:  # an exception has ended the program
        return
    for folder, digest in _digest.items():
        try:
            end_message.put(path, end_message.MODEL, json.dumps(count(folder, digest), separators=(",", ":")))
        except OSError as error:
            log.warning("the files of the model in %s cannot be counted: %s", folder, error)


def count(folder: Path, digest: bool | None = None) -> dict[str, object]:
    """Return the number of the regular files in a folder, their bytes, and their digest.

    The digest is that of the lines that `sha256sum` prints for the files, in the order of their names as bytes. Links
    are not followed. The digest is empty for an empty folder and where none is computed. Raises OSError.
    """
    found = sorted(_files(os.fsencode(folder)))
    size = sum(length for _, length in found)
    is_wanted = size <= MOST_BYTES if digest is None else digest
    total = hashlib.sha256()
    for name, _ in found if is_wanted else ():
        mark, shown = _escape(name)
        total.update(mark + _hash(os.path.join(os.fsencode(folder), name)).encode() + b"  " + shown + b"\n")
    text = f"sha256:{total.hexdigest()}" if found and is_wanted else ""
    return {"files": len(found), "bytes": size, "digest": text}


def _files(root: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield the path of each regular file below a folder, and its size."""
    for folder, _, names in os.walk(root, onerror=_raise):
        for name in names:
            path = os.path.join(folder, name)
            about = os.lstat(path)
            if stat.S_ISREG(about.st_mode):
                yield os.path.relpath(path, root), about.st_size


def _raise(error: OSError) -> None:
    raise error


def _escape(name: bytes) -> tuple[bytes, bytes]:
    """Return how a line of `sha256sum` begins, and a name as this line has it: a name with a line break would look like
    two files."""
    shown = name.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
    return b"\\" if shown != name else b"", shown


def _hash(path: bytes) -> str:
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            found.update(chunk)
    return found.hexdigest()
