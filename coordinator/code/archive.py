"""The archive of a job's code: a tar file, compressed with gzip.

One rule: the same content gives the same bytes. Entries are sorted and have no times and no owners, and a mode says
only whether a file is executable.

gzip with level 6 was chosen by measurement: for 9.5 MB of Python it gives 2.2 MB in 0.3 s. bz2 gives 1.6 MB in 0.6 s,
but takes 5.7 s for 75 MB of alike files, and xz takes 6.6 s. Some images have a Python without bz2 and lzma.
"""

import hashlib
import io
import tarfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

_GZIP = 31
"""The window of zlib with a gzip header, in which zlib writes no time."""
_LEVEL = 6


class CodeFile(NamedTuple):
    """A file of the code, or a link in it."""

    path: str
    content: bytes = b""
    executable: bool = False
    link: str = ""
    """The target of a symbolic link; empty for a file."""


class LimitReached(Exception):
    """The archive is larger than allowed."""


@dataclass(frozen=True, slots=True)
class Archive:
    """The packed code."""

    content: bytes
    digest: str
    """The SHA-256 digest of the content, in hex."""
    files: int

    @property
    def short(self) -> str:
        """The beginning of the digest, which names objects."""
        return self.digest[:16]


class _LimitedGzip(io.RawIOBase):
    """A file that compresses the written bytes, up to a number of bytes."""

    def __init__(self, limit: int) -> None:
        self._compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._append(self._compressor.compress(data))
        return len(data)

    def finish(self) -> bytes:
        self._append(self._compressor.flush())
        return b"".join(self._pieces)

    def _append(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            raise LimitReached
        self._pieces.append(piece)


def build(files: Iterable[CodeFile], limit: int) -> Archive:
    """Return the archive of files that are sorted by path.

    Raises LimitReached as soon as the file has more than `limit` bytes, so that no huge folder is read to its end.
    """
    output = _LimitedGzip(limit)
    count = 0
    with tarfile.open(fileobj=output, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for file in files:
            tar.addfile(_header(file), io.BytesIO(file.content))
            count += 1
    content = output.finish()
    return Archive(content, hashlib.sha256(content).hexdigest(), count)


def _header(file: CodeFile) -> tarfile.TarInfo:
    header = tarfile.TarInfo(file.path)
    if file.link:
        header.type, header.linkname, header.mode = tarfile.SYMTYPE, file.link, 0o777
    else:
        header.size, header.mode = len(file.content), 0o755 if file.executable else 0o644
    return header
