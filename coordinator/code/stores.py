"""Where the code of jobs is kept until their pods unpack it: the interface of every store.

One rule: a store keeps an archive under its digest, and never changes it. `source` says how a pod finds the code there.
"""

from dataclasses import dataclass
from typing import Protocol

from coordinator.code.archive import Archive
from crds.keys import JobKey
from kube.api import Manifest

CODE_VOLUME = "torchq-code"
CODE_PATH = "/torchq/code"
"""Where a pod finds its own copy of the code."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A volume of a pod, and where its container finds it."""

    volume: Manifest
    path: str
    read_only: bool = True

    @property
    def name(self) -> str:
        """The name of the volume."""
        return str(self.volume["name"])


Mounts = tuple[Mount, ...]
"""Where the container `torchq-code` of a pod finds an archive."""


class CodeStore(Protocol):
    """A place for the code of jobs. Safe to share between processes."""

    @property
    def limit(self) -> int:
        """The most bytes of an archive."""

    def source(self, archive: Archive) -> Mounts:
        """Return where pods find an archive, unless `keep` says otherwise."""

    def keep(self, archive: Archive, owner: JobKey) -> Mounts:
        """Keep an archive for a job, and return where its pods find it. Called again, it does nothing more.

        Raises StoreFailed, and any ClusterError.
        """

    def objects(self, archive: Archive, namespace: str) -> list[Manifest]:
        """Return the objects of the cluster that hold an archive, without owners, for a dry run."""
