"""Closes the data folder of a local cluster to other users.

One rule: write access to the folder lets a user run programs as its owner, and read access reveals the cluster's token.
So each start closes the folder to other users, and replaces the secrets that other users could have read.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from coordinator.errors import LocalError
from coordinator.local.stack_state import Files

UMASK = 0o077
"""The umask of every process of a cluster. Containers have the usual one, 022, which their shims set."""
_OTHERS = 0o077


def secure(data: Path) -> list[str]:
    """Create the folder, or close it to other users; return notes about this change. The cluster must not run.

    Raises LocalError for a folder of another user, and for an open folder with other files, since closing it may break
    their use.
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
    files = Files(data)
    is_cluster = files.lock.exists() or files.layout.database.exists()
    if mode & _OTHERS and any(data.iterdir()) and not is_cluster:
        raise LocalError(
            f"--data: {data} holds other files and is open to other users: choose a new folder for the cluster"
        )
    layout = files.layout
    secrets = (layout.token, layout.kubeconfig, layout.key("ca"), layout.key("server"), *files.secrets)
    exposed = bool(mode & _OTHERS) and any(path.stat().st_mode & _OTHERS for path in secrets if path.exists())
    for path in (data, *entries):
        _check_owner(path)
        if not path.is_symlink() and path.stat().st_mode & _OTHERS:
            path.chmod(0o700 if path.is_dir() else 0o600)
    notes = [f"{data} was open to other users and is closed now"] if mode & _OTHERS and entries else []
    if exposed:
        for path in (layout.token, layout.kubeconfig, *files.secrets):  # missing ones are created at the next start
            path.unlink(missing_ok=True)
        shutil.rmtree(layout.key("ca").parent, ignore_errors=True)
        notes.append("other users could read the cluster's token or keys: they and the kubeconfig are created again")
    return notes


def _check_owner(path: Path) -> None:
    """Raise LocalError for a path of another user, who could change it at any time."""
    if path.lstat().st_uid != os.getuid():
        raise LocalError(f"--data: {path} belongs to another user: choose another folder")


def _entries(data: Path) -> Iterator[Path]:
    """Yield the entries of the folder, and of its folders that processes other than pods use."""
    layout = Files(data).layout
    for path in sorted(data.iterdir()):
        yield path
        if path in (layout.redis, layout.certificate("ca").parent) and path.is_dir():
            yield from sorted(path.iterdir())
