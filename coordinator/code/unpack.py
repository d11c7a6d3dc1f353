"""Unpacks the code of a job: the container `torchq-code` runs this text before the job's own container starts.

One rule: nothing is written before the digest is right, and nothing is written outside the folder of the code. Unpacked
code stays as the job has left it, however often the container runs. Memory is bounded, whatever the archive has, and so
is what the archive may become: the packer has the same limits.

The program runs as `python3 -c TEXT DIGEST`, with the Python of the job's image: 3.6 or newer, its standard library
alone. The variables TORCHQ_VOLUME_... name the folders: TORCHQ_CODE is the job's; TORCHQ_PART_1, TORCHQ_PART_2 and so
on have one part of the archive each, or TORCHQ_STORE has the whole archive.
"""

import gzip
import hashlib
import io
import os
import shutil
import sys
import tarfile
import tempfile
import typing
import zlib

VOLUME = "TORCHQ_VOLUME_TORCHQ_"
MARK = ".torchq-unpacked"
"""The file in the folder that says which code is there. Containers that are restarted in place run this program
again."""


LARGEST_ARCHIVE = 256 * 1024**2
"""The most bytes of an archive."""
LARGEST_OF_PARTS = 256 * 1024**2 + 16 * 1024**2
LARGEST_OF_STORE = 2 * 1024**3 + 16 * 1024**2
"""The most bytes of an unpacked archive: the limits of the packer, with room for the package torchq and for headers."""
MOST_MEMBERS = 110000
PIECE = 1024**2
"""The most bytes that are in memory at once. No header of an archive is as large."""


class NotUnpacked(Exception):
    """The code cannot be unpacked; the message says why."""


class Unzipped(gzip.GzipFile):
    """The unzipped archive, read in small pieces and up to a number of bytes."""

    largest = 0

    def read(self, size: int = -1) -> bytes:  # type: ignore[override]
        """Return the next bytes. Raises NotUnpacked if they are too many."""
        if not 0 <= size <= PIECE:
            raise NotUnpacked("the code has a header that is too large")
        self.check(self.tell() + size)
        return super().read(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Pass over bytes. Raises NotUnpacked if they are too many."""
        self.check(offset)
        return super().seek(offset, whence)

    def check(self, size: int) -> None:
        """Raise NotUnpacked if the unzipped archive has more bytes than the packer allows."""
        if size > self.largest + PIECE:
            raise NotUnpacked(f"the code is larger than {self.largest // 1024**2} MiB when unpacked")


def copy_archive(digest: str, copy: typing.IO[bytes]) -> int:
    """Write the archive into a file, so that it cannot change between the look at its digest and the unpacking. Return
    the most bytes that it may become.

    Raises NotUnpacked if the archive is missing, is too large, or does not have the digest.
    """
    store = os.environ.get(VOLUME + "STORE")
    paths = []
    if store:
        paths.append(os.path.join(store, digest + ".tar.gz"))
    while VOLUME + "PART_" + str(len(paths) + 1) in os.environ and not store:
        paths.append(os.path.join(os.environ[VOLUME + "PART_" + str(len(paths) + 1)], "part"))
    found = hashlib.sha256()
    for path in paths:
        for piece in pieces_of(path):
            found.update(piece)
            copy.write(piece)
            if copy.tell() > LARGEST_ARCHIVE:
                raise NotUnpacked(f"the archive of the code is larger than {LARGEST_ARCHIVE // 1024**2} MiB")
    if found.hexdigest() != digest:
        present = found.hexdigest()[:16]
        raise NotUnpacked(
            f"the digest of the code is {present}, not {digest[:16]}: it was changed; submit the job again"
        )
    copy.seek(0)
    return LARGEST_OF_STORE if store else LARGEST_OF_PARTS


def pieces_of(path: str) -> typing.Iterator[bytes]:
    """Yield the content of a file. Raises NotUnpacked if it cannot be read."""
    try:
        with open(path, "rb") as file:
            while True:
                piece = file.read(PIECE)
                if not piece:
                    return
                yield piece
    except OSError as error:
        raise NotUnpacked(f"{path} cannot be read ({error.strerror}): submit the job again") from error


def write_members(archive: tarfile.TarFile, folder: str, largest: int) -> int:
    """Write the files, then the links, so that no file is written through a link. Return the number of files and
    links."""
    links = []
    count = written = 0
    while True:
        member = archive.next()
        archive.members = []  # type: ignore[attr-defined] # else all of them stay in memory
        if member is None:
            break
        count += 1
        written += member.size
        if count > MOST_MEMBERS or written > largest or member.size < 0:
            raise NotUnpacked(f"the code has more than {MOST_MEMBERS} files or {largest // 1024**2} MiB")
        target = safe_path(folder, member.name)
        content = archive.extractfile(member) if member.isfile() and not member.issparse() else None
        if member.issym():
            safe_path(folder, os.path.normpath(os.path.join(os.path.dirname(member.name), member.linkname)))
            links.append((target, member.linkname))
        elif content is not None:
            write_file(target, content, member.mode)
        else:
            raise NotUnpacked(f"the code has {member.name}, which is neither a file nor a link")
    for target, link in links:
        make_room(target)
        os.symlink(link, target)
    return count


def safe_path(folder: str, name: str) -> str:
    """Return the place of a file. Raises NotUnpacked if the path is outside of the folder, also by a link that is
    there.
    """
    parts = name.split("/")
    target = os.path.join(folder, *parts)
    inside = os.path.realpath(folder) + os.sep
    if ".." in parts or "" in parts or not (os.path.realpath(os.path.dirname(target)) + os.sep).startswith(inside):
        raise NotUnpacked(f"the code has a file outside of its folder: {name}")
    return target


def write_file(target: str, content: typing.IO[bytes], mode: int) -> None:
    """Write one file anew."""
    make_room(target)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with open(os.open(target, flags, mode & 0o755), "wb") as file:
        shutil.copyfileobj(content, file, PIECE)


def make_room(target: str) -> None:
    """Create the folder of a file, and remove the file that an earlier run has left."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.lexists(target):
        os.remove(target)


def is_unpacked(mark: str, digest: str) -> bool:
    """Return whether the code is in the folder already."""
    try:
        with open(mark) as file:
            return file.read() == digest
    except OSError:
        return False


def main(digest: str) -> None:
    """Unpack the code into its folder, or end with exit code 1 and one line with the reason."""
    folder = os.environ[VOLUME + "CODE"]
    mark = os.path.join(folder, MARK)
    if is_unpacked(mark, digest):
        return
    try:
        with tempfile.TemporaryFile(dir=folder) as copy:
            largest = copy_archive(digest, copy)
            with Unzipped(fileobj=copy) as content:
                content.largest = largest
                with tarfile.open(fileobj=content, mode="r:") as archive:
                    count = write_members(archive, folder, largest)
        write_file(mark, io.BytesIO(digest.encode()), 0o644)
    except NotUnpacked as error:
        sys.exit(f"torchq: {error}")
    except (OSError, EOFError, RecursionError, ValueError, tarfile.TarError, zlib.error) as error:
        sys.exit(f"torchq: the code cannot be unpacked into {folder}: {error}")
    print(f"torchq: unpacked {count} files of {digest[:8]}")


if __name__ == "__main__":
    main(sys.argv[1])
