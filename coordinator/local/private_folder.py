"""The data folder of a cluster on one machine is for its user alone.

One rule: whoever can write there can run programs as that user, and whoever can read there has the cluster's token. So
before a start what others could reach is closed, and what they could know is made again.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from coordinator.errors import LocalError
from coordinator.local.stack_state import Files

UMASK = 0o077
"""Of every process of a cluster. Containers have the usual one, 022: their shims set it."""
_OTHERS = 0o077


def secure(data: Path) -> list[str]:
    """Make the folder, or close it to other users; what there is to say about that. Not for a cluster that runs.

    LocalError for a folder of another user's, or one that holds other things and is open: closing it may not be wanted.
    """
    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        return _close(data.resolve())
    except OSError as error:
        raise LocalError(f"--data: {data} cannot be closed to other users: {error.strerror or error}") from error


def _close(data: Path) -> list[str]:
    mode = data.stat().st_mode
    _check_owner(data)
    entries = list(_entries(data))
    if mode & _OTHERS and any(data.iterdir()) and not _is_cluster(data):
        raise LocalError(
            f"--data: {data} holds other things and is open to other users: choose a new folder for the cluster"
        )
    exposed = bool(mode & _OTHERS) and any(path.stat().st_mode & _OTHERS for path in _secrets(data))
    for path in (data, *entries):
        _check_owner(path)
        if not path.is_symlink() and path.stat().st_mode & _OTHERS:
            path.chmod(0o700 if path.is_dir() else 0o600)
    notes = [f"{data} was open to other users and is closed now"] if mode & _OTHERS and entries else []
    if exposed:
        _forget(data)
        notes.append("other users could read its token or its keys: they and the kubeconfig are made again")
    return notes


def _check_owner(path: Path) -> None:
    """LocalError for what another user has made: that user could change it at any time."""
    if path.lstat().st_uid != os.getuid():
        raise LocalError(f"--data: {path} belongs to another user: choose another folder")


def _is_cluster(data: Path) -> bool:
    return Files(data).lock.exists() or Files(data).layout.database.exists()


def _entries(data: Path) -> Iterator[Path]:
    """What is in the folder, and in those of its folders that others than pods use."""
    layout = Files(data).layout
    for path in sorted(data.iterdir()):
        yield path
        if path in (layout.redis, layout.certificate("ca").parent) and path.is_dir():
            yield from sorted(path.iterdir())


def _secrets(data: Path) -> Iterator[Path]:
    layout = Files(data).layout
    candidates = (layout.token, layout.kubeconfig, layout.key("ca"), layout.key("server"))
    return (path for path in candidates if path.exists())


def _forget(data: Path) -> None:
    """The API server makes all of it at its start, where it is missing."""
    layout = Files(data).layout
    layout.token.unlink(missing_ok=True)
    layout.kubeconfig.unlink(missing_ok=True)
    shutil.rmtree(layout.key("ca").parent, ignore_errors=True)
