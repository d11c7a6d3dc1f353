"""Unpacks the code of a job: the container `torchq-code` runs this text before the job's own container starts.

One rule: nothing is written before the digest is right, and nothing is written outside the folder of the code. Unpacked
code stays as the job has left it, however often the container runs.

The program runs as `python3 -c TEXT DIGEST`, with the Python of the job's image: 3.6 or newer, its standard library
alone. The variables TORCHQ_VOLUME_... name the folders: TORCHQ_CODE is the job's; TORCHQ_PART_1, TORCHQ_PART_2 and so
on have one part of the archive each, or TORCHQ_STORE has the whole archive.
"""

import hashlib
import io
import os
import sys
import tarfile

VOLUME = "TORCHQ_VOLUME_TORCHQ_"
MARK = ".torchq-unpacked"
"""The file in the folder that says which code is there. Containers that are restarted in place run this program
again."""


class NotUnpacked(Exception):
    """The code cannot be unpacked; the message says why."""


def read_archive(digest: str) -> bytes:
    """Return the archive. Raises NotUnpacked if the archive is missing or does not have the digest."""
    store = os.environ.get(VOLUME + "STORE")
    paths = []
    if store:
        paths.append(os.path.join(store, digest + ".tar.gz"))
    while VOLUME + "PART_" + str(len(paths) + 1) in os.environ and not store:
        paths.append(os.path.join(os.environ[VOLUME + "PART_" + str(len(paths) + 1)], "part"))
    content = b""
    for path in paths:
        try:
            with open(path, "rb") as file:
                content += file.read()
        except OSError as error:
            raise NotUnpacked(f"{path} cannot be read ({error.strerror}): submit the job again") from error
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        raise NotUnpacked(
            f"the digest of the code is {found[:16]}, not {digest[:16]}: it was changed; submit the job again"
        )
    return content


def write_members(archive: tarfile.TarFile, folder: str) -> int:
    """Write the files, then the links, so that no file is written through a link. Return the number of files and
    links."""
    links = []
    count = 0
    for member in archive:
        target = safe_path(folder, member.name)
        if member.issym():
            safe_path(folder, os.path.normpath(os.path.join(os.path.dirname(member.name), member.linkname)))
            links.append((target, member.linkname))
        elif member.isfile():
            content = archive.extractfile(member)
            write_file(target, content.read() if content else b"", member.mode)
        else:
            raise NotUnpacked(f"the code has {member.name}, which is neither a file nor a link")
        count += 1
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


def write_file(target: str, content: bytes, mode: int) -> None:
    """Write one file anew."""
    make_room(target)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with open(os.open(target, flags, mode & 0o755), "wb") as file:
        file.write(content)


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
        with tarfile.open(fileobj=io.BytesIO(read_archive(digest)), mode="r:gz") as archive:
            count = write_members(archive, folder)
        write_file(mark, digest.encode(), 0o644)
    except NotUnpacked as error:
        sys.exit(f"torchq: {error}")
    except (OSError, tarfile.TarError) as error:
        sys.exit(f"torchq: the code cannot be unpacked into {folder}: {error}")
    print(f"torchq: unpacked {count} files of {digest[:8]}")


if __name__ == "__main__":
    main(sys.argv[1])
