"""Reads the files of a folder for packing.

One rule: a file is packed as it was at one moment, or it is refused by name. A link is packed only if it stays inside.
"""

import os
import posixpath
import stat
from collections.abc import Iterable
from pathlib import Path

from coordinator.code.archive import CodeFile
from coordinator.code.errors import FolderRefused

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
LEAVE_OUT = "leave it out with .torchqignore"
_KINDS = ((stat.S_ISFIFO, "a fifo"), (stat.S_ISSOCK, "a socket"))


def read(folder: Path, path: str) -> CodeFile:
    """Return a file or a link of a folder. Raises FolderRefused for an entry that cannot be packed."""
    try:
        found = (folder / path).lstat()
        if stat.S_ISLNK(found.st_mode):
            return CodeFile(path, link=_inner_target(folder, path))
        if not stat.S_ISREG(found.st_mode):
            kind = next((kind for is_kind, kind in _KINDS if is_kind(found.st_mode)), "a device")
            raise FolderRefused(f"{path} is {kind}, which no pod can have: {LEAVE_OUT}")
        return _regular_file(folder, path)
    except FileNotFoundError as error:
        raise _changed(path, "was removed") from error
    except OSError as error:
        raise FolderRefused(f"{path} cannot be read ({error.strerror}): {LEAVE_OUT}, or allow it to be read") from error


def _regular_file(folder: Path, path: str) -> CodeFile:
    descriptor = os.open(folder / path, _FLAGS)
    with open(descriptor, "rb") as file:
        before = os.fstat(descriptor)
        content = file.read()
        after = os.fstat(descriptor)
    if not stat.S_ISREG(before.st_mode):
        raise _changed(path, "was replaced")
    is_same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    if not is_same or len(content) != after.st_size:
        raise _changed(path, "changed")
    return CodeFile(path, content, executable=bool(before.st_mode & stat.S_IXUSR))


def _changed(path: str, what: str) -> FolderRefused:
    return FolderRefused(f"{path} {what} while the folder was packed: try again, or {LEAVE_OUT}")


def _inner_target(folder: Path, path: str) -> str:
    """Return the target of a link, relative to the link. Raises FolderRefused for a link out of the folder."""
    target = os.readlink(folder / path)
    parent = posixpath.dirname(path)
    if os.path.isabs(target):
        target = os.path.relpath(target, folder / parent)
    inside = posixpath.normpath(posixpath.join(parent, target))
    leads_out = inside.startswith("..") or not _is_utf8(target) or not _stays_inside(folder, path)
    if leads_out:
        shown = os.fsencode(os.readlink(folder / path)).decode(errors="backslashreplace")
        raise FolderRefused(
            f"{path} is a link out of the folder, to {shown}, where no pod finds anything: {LEAVE_OUT}, or replace it"
        )
    return target


def _stays_inside(folder: Path, path: str) -> bool:
    """Return whether a link ends inside of the folder, whatever links it passes. A link that leads nowhere counts as
    inside.
    """
    try:
        return (folder / path).resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a loop
        return True


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def sizes(folder: Path, paths: Iterable[str]) -> dict[str, int]:
    """Return the sizes of files by path; files that are gone are left out."""
    found = {}
    for path in paths:
        try:
            found[path] = (folder / path).lstat().st_size
        except OSError:
            continue
    return found
