"""The files that a job's rank 0 has written beside its code, which are deleted with its pod.

One rule: only the embedded API server knows these files (`embedded.apiserver.http.log_answers`); on any other cluster
the list is empty.
"""

from dataclasses import dataclass
from pathlib import Path

import orjson

from coordinator.code.largest import size_text
from crds.keys import JobKey
from kube import errors
from kube.api import Cluster

LIST = "files"
"""The name of the list among the runs of a job."""


@dataclass(frozen=True, slots=True)
class NewFiles:
    """The new files of the last copy of the code."""

    folder: Path
    sizes: dict[str, int]
    """The bytes of each file, by its path in the folder."""

    def describe(self) -> str:
        """Return the line that names the new files, the largest first."""
        count = f"{len(self.sizes):,} new file{'s' if len(self.sizes) != 1 else ''}"
        largest = max(self.sizes, key=lambda path: self.sizes[path])
        return f"{count}, {size_text(sum(self.sizes.values()))}: {largest}; torchq.output() keeps them"


def read(cluster: Cluster, key: JobKey) -> NewFiles | None:
    """Return the new files of a job; None if there are none, or if the server does not know."""
    try:
        answer = b"".join(cluster.job_log(key.namespace, key.uid, LIST))
    except errors.ClusterError:
        return None
    found = orjson.loads(answer)
    return NewFiles(Path(found["folder"]), {each["path"]: each["bytes"] for each in found["files"]}) if found else None
