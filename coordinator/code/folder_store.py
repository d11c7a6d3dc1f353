"""The store for code that is too large for ConfigMaps: a folder that this machine and every node see at the same path.

One rule: a file has its final name only once it is whole. Files are never deleted here; the time of a file is that of
its last use, so an admin can delete old files.
"""

import contextlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from coordinator.code.archive import Archive
from coordinator.code.errors import StoreFailed
from coordinator.code.stores import Mount, Mounts
from crds.keys import JobKey
from kube.api import Manifest

LIMIT = 256 * 1024 * 1024
"""The most bytes of an archive: clients and pods hold one in memory."""
VOLUME = "torchq-store"
PATH = "/torchq/store"


@dataclass(frozen=True, slots=True)
class FolderStore:
    """Keeps code as files in a shared folder, which pods mount as a hostPath volume."""

    folder: Path

    @property
    def limit(self) -> int:
        """See CodeStore."""
        return LIMIT

    def source(self, archive: Archive) -> Mounts:  # noqa: ARG002 (the folder is the same for all)
        """See CodeStore."""
        volume = {"name": VOLUME, "hostPath": {"path": str(self.folder), "type": "Directory"}}
        return (Mount(volume, PATH),)

    def objects(self, archive: Archive, namespace: str) -> list[Manifest]:  # noqa: ARG002 (there are none)
        """See CodeStore. There are none."""
        return []

    def keep(self, archive: Archive, owner: JobKey) -> Mounts:  # noqa: ARG002 (files have no owners)
        """See CodeStore."""
        path = self.folder / f"{archive.digest}.tar.gz"
        try:
            if path.is_file() and path.stat().st_size == len(archive.content):
                with contextlib.suppress(PermissionError):  # the file of another user
                    os.utime(path)
            else:
                self._write(path, archive.content)
        except OSError as error:
            raise StoreFailed(
                f"the code store {self.folder} cannot be used ({error.strerror}): create the folder on every node and "
                "on this machine, and allow this user to write to it (setting code_store)"
            ) from error
        return self.source(archive)

    def _write(self, path: Path, content: bytes) -> None:
        descriptor, draft = tempfile.mkstemp(dir=self.folder, prefix=".draft-")
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
                os.fchmod(descriptor, 0o644)
                file.flush()
                os.fsync(descriptor)
            os.replace(draft, path)
        except BaseException:
            os.unlink(draft)
            raise
