"""Allocates the blocks of a file on disk before they are written.

One rule: an allocated block stays the file's own, so that a later write to it succeeds on a full disk too.
"""

import errno
import os
from pathlib import Path

_PIECE = 1024 * 1024
"""The bytes of one write, on systems that cannot allocate without writing."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def allocate(path: Path, size: int) -> None:
    """Extend a file to at least `size` bytes that are allocated on disk. Raise OSError on failure."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if _preallocate(descriptor, size):
            return
        missing = size - os.lseek(descriptor, 0, os.SEEK_END)
        while missing > 0:
            missing -= os.write(descriptor, bytes(min(missing, _PIECE)))
    finally:
        os.close(descriptor)


def _preallocate(descriptor: int, size: int) -> bool:
    """Allocate without writing; return whether the system supports the allocation. Raise OSError if the disk has no
    room.
    """
    if not hasattr(os, "posix_fallocate"):  # macOS
        return False
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise
        return False  # the file system does not support it
    return True
