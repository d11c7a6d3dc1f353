"""The local clusters that `torchq local up` made current for this user; the last of them is the current one.

One rule: only `torchq local` changes this note, and torchq never changes a kubeconfig of the user. An entry counts on
the machine that it was made on, since several machines may share a home folder.
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
class Entry:
    """A local cluster that was made current."""

    data: str
    """Its data folder."""
    host: str
    """The machine it runs on."""


def note(environ: Mapping[str, str]) -> Path | None:
    """The file; None for a user without a home folder, for whom nothing is remembered."""
    folder = user_folders.config(environ)
    return folder / NAME if folder else None


def data(environ: Mapping[str, str]) -> Path | None:
    """The data folder of the current local cluster, running or not; None if there is none. LocalError if the note
    cannot be read: another cluster must not be used by mistake."""
    path = note(environ)
    mine = [each for each in _read(path) if each.host == socket.gethostname()] if path else []
    return Path(mine[-1].data) if mine else None


def take(environ: Mapping[str, str], folder: Path) -> None:
    """Make the cluster of a data folder the current one. LocalError if that cannot be remembered."""
    own = Entry(str(folder), socket.gethostname())
    _change(environ, lambda entries: [*(each for each in entries if each != own), own])


def give_back(environ: Mapping[str, str], folder: Path, runs: Callable[[Path], bool]) -> bool:
    """Forget the cluster of a data folder; whether it was the current one. Of the others, the one that was made current
    last and runs is current then; if none runs, the last one. LocalError if the note cannot be changed."""
    own, path, current = Entry(str(folder), socket.gethostname()), note(environ), data(environ)
    if path and own in _read(path):
        _change(environ, lambda entries: without(entries, own, runs))
    return current == folder


def without(entries: Sequence[Entry], gone: Entry, runs: Callable[[Path], bool]) -> list[Entry]:
    """The entries that are left: those of clusters that run come last, those whose data folder was removed are left
    out."""
    others = [each for each in entries if each != gone]
    here = [each for each in others if each.host == gone.host and Path(each.data).is_dir()]
    elsewhere = [each for each in others if each.host != gone.host]
    return [*elsewhere, *sorted(here, key=lambda each: runs(Path(each.data)))]


def _read(path: Path) -> list[Entry]:
    try:
        return [_entry(each) for each in _listed(orjson.loads(path.read_bytes()))]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise LocalError(f"cannot read which local cluster is current: {path}: {error.strerror}") from error
    except (TypeError, KeyError, ValueError):
        raise LocalError(
            f"cannot read which local cluster is current: {path} is damaged; remove it, then: torchq local up"
        ) from None


def _listed(found: object) -> list[Any]:
    if not isinstance(found, list):
        raise TypeError(found)
    return found


def _entry(found: Any) -> Entry:
    """TypeError, KeyError, ValueError for what torchq has not written."""
    entry = Entry(found["data"], found["host"])
    if not Path(entry.data).is_absolute() or "\0" in entry.data or not isinstance(entry.host, str):
        raise ValueError(found)
    return entry


def _change(environ: Mapping[str, str], edit: Callable[[list[Entry]], list[Entry]]) -> None:
    """Replace the entries; commands that run at the same time wait for each other."""
    path = note(environ)
    if path is None:
        raise LocalError("which cluster is current cannot be remembered: this user has no home folder; set HOME")
    try:
        with _alone(path.parent):
            _write(path, edit(_read(path)))
    except OSError as error:
        raise LocalError(f"which cluster is current cannot be remembered: {path}: {error.strerror}") from error


def _write(path: Path, entries: Sequence[Entry]) -> None:
    if not entries:
        path.unlink(missing_ok=True)
        return
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(orjson.dumps([{"data": each.data, "host": each.host} for each in entries]))
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: the last of two writers wins
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
