"""The local clusters that `torchq local up` made current for this user; the last one of these clusters is the current
cluster.

One rule: only `torchq local` changes this note, and torchq never changes a kubeconfig of the user. An entry is valid
on the machine that it was made on, since several machines may share a home folder.
"""

import contextlib
import fcntl
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from coordinator.errors import LocalError
from coordinator.local import user_folders

NAME = "local-clusters.json"


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """A local cluster that was made current."""

    data: str
    """Its data folder."""
    host: str
    """The machine it runs on."""


def note_path(environ: Mapping[str, str]) -> Path | None:
    """Return the path of the note; None for a user without a home folder, who has no note."""
    folder = user_folders.config(environ)
    return folder / NAME if folder else None


def data_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the data folder of the current local cluster, running or not; None if no cluster is current.

    Raises LocalError if the note cannot be read, since commands must not use another cluster by mistake.
    """
    path = note_path(environ)
    local_entries = [entry for entry in _read(path) if entry.host == socket.gethostname()] if path else []
    return Path(local_entries[-1].data) if local_entries else None


def make_current(environ: Mapping[str, str], folder: Path) -> None:
    """Make the cluster of a data folder the current cluster. Raises LocalError if the note cannot be written."""
    made = LocalCluster(str(folder), socket.gethostname())
    _change(environ, lambda entries: [*(entry for entry in entries if entry != made), made])


def remove(environ: Mapping[str, str], folder: Path, runs: Callable[[Path], bool]) -> bool:
    """Remove the cluster of a data folder from the note; return whether this cluster was the current cluster.

    The next current cluster is the running cluster that was made current last, or the last cluster if none runs. Raises
    LocalError if the note cannot be written.
    """
    entry, path, current = LocalCluster(str(folder), socket.gethostname()), note_path(environ), data_folder(environ)
    if path and entry in _read(path):
        _change(environ, lambda entries: without(entries, entry, runs))
    return current == folder


def without(entries: Sequence[LocalCluster], removed: LocalCluster, runs: Callable[[Path], bool]) -> list[LocalCluster]:
    """Return the remaining entries. Entries of running clusters come last; entries without a data folder are
    dropped."""
    remaining = [entry for entry in entries if entry != removed]
    local_entries = [entry for entry in remaining if entry.host == removed.host and Path(entry.data).is_dir()]
    other_entries = [entry for entry in remaining if entry.host != removed.host]
    return [*other_entries, *sorted(local_entries, key=lambda entry: runs(Path(entry.data)))]


def _read(path: Path) -> list[LocalCluster]:
    try:
        match orjson.loads(path.read_bytes()):
            case list() as entries:
                return [_entry(entry) for entry in entries]
            case other:
                raise TypeError(other)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise LocalError(f"cannot read which local cluster is current: {path}: {error.strerror}") from error
    except (TypeError, KeyError, ValueError):
        raise LocalError(
            f"cannot read which local cluster is current: {path} is damaged; remove it, then: torchq local up"
        ) from None


def _entry(value: Any) -> LocalCluster:
    """Parse an entry. Raises TypeError, KeyError or ValueError for an entry that torchq has not written."""
    entry = LocalCluster(value["data"], value["host"])
    if not Path(entry.data).is_absolute() or "\0" in entry.data or not isinstance(entry.host, str):
        raise ValueError(value)
    return entry


def _change(environ: Mapping[str, str], edit: Callable[[list[LocalCluster]], list[LocalCluster]]) -> None:
    """Replace the entries. Commands that run at the same time wait for each other."""
    path = note_path(environ)
    if path is None:
        raise LocalError("cannot store which local cluster is current: this user has no home folder; set HOME")
    try:
        with _lock(path.parent):
            _write(path, edit(_read(path)))
    except OSError as error:
        raise LocalError(f"cannot store which local cluster is current: {path}: {error.strerror}") from error


def _write(path: Path, entries: Sequence[LocalCluster]) -> None:
    if not entries:
        path.unlink(missing_ok=True)
        return
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(orjson.dumps([{"data": entry.data, "host": entry.host} for entry in entries]))
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: the last of two writers wins
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
