"""The manifests of the ConfigMaps that hold the code of jobs.

One rule: pure. A ConfigMap never changes but for its owners: the jobs that use it. The last one takes it along.
"""

import base64
from collections.abc import Iterator

from coordinator.code.archive import Archive
from coordinator.code.stores import CodeSource, Mount
from crds import labels
from crds.api_resources import CONFIG_MAPS, TORCHJOBS
from crds.keys import JobKey
from kube.api import Manifest

LIMIT = 4 * 1024 * 1024
"""The most bytes of an archive: six ConfigMaps."""
PART_BYTES = 720_000
"""The bytes of an archive in one ConfigMap. In base64 and with MOST_OWNERS owners it has less than 1,000,000 bytes; the
API server takes 1,048,576."""
MOST_OWNERS = 200
"""The most jobs that share one copy."""
PREFIX = "torchq-code-"
KEY = "part"
PARTS_PATH = "/torchq/parts"


def names(archive: Archive, copy: int) -> list[str]:
    """Return the names of the ConfigMaps of a copy, counted from 1, in the order of their parts."""
    infix = f"-{copy}" if copy > 1 else ""
    return [f"{PREFIX}{archive.short}{infix}-{part}" for part in range(1, len(_slices(archive)) + 1)]


def is_name(text: str) -> bool:
    """Return whether a ConfigMap of this name holds code."""
    return text.startswith(PREFIX)


def manifests(archive: Archive, copy: int, namespace: str) -> list[Manifest]:
    """Return the ConfigMaps of a copy, without owners."""
    return [
        {
            "apiVersion": CONFIG_MAPS.api_version,
            "kind": CONFIG_MAPS.kind,
            "metadata": {"name": name, "namespace": namespace, "labels": {labels.CODE: archive.short}},
            "immutable": True,
            "binaryData": {KEY: base64.b64encode(content).decode()},
        }
        for name, content in zip(names(archive, copy), _slices(archive), strict=True)
    ]


def source(archive: Archive, copy: int) -> CodeSource:
    """Return where pods find a copy: each ConfigMap is a volume."""
    return CodeSource(tuple(_mounts(names(archive, copy))))


def owner_reference(job: JobKey) -> Manifest:
    """Return the reference of a job to what it uses. It is no controller, since an object has one controller only."""
    return {"apiVersion": TORCHJOBS.api_version, "kind": TORCHJOBS.kind, "name": job.name, "uid": job.uid}


def _mounts(config_maps: list[str]) -> Iterator[Mount]:
    for part, name in enumerate(config_maps, start=1):
        yield Mount({"name": f"torchq-part-{part}", "configMap": {"name": name}}, f"{PARTS_PATH}/{part}")


def _slices(archive: Archive) -> list[bytes]:
    content = archive.content
    return [content[start : start + PART_BYTES] for start in range(0, len(content), PART_BYTES)]
