"""The manifests of the ConfigMaps that hold the code of jobs.

One rule: a ConfigMap never changes but for its owners: the jobs that use it. The ConfigMap is deleted with its last
owner.
"""

import base64
import hashlib
from collections.abc import Iterable

from coordinator.code.archive import Archive
from coordinator.code.stores import Mount, Mounts
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
        CONFIG_MAPS.manifest(
            {"name": name, "namespace": namespace, "labels": {labels.CODE: archive.short}},
            immutable=True,
            binaryData={KEY: base64.b64encode(content).decode()},
        )
        for name, content in zip(names(archive, copy), _slices(archive), strict=True)
    ]


def source(archive: Archive, copy: int) -> Mounts:
    """Return where pods find a copy: each ConfigMap is a volume."""
    return tuple(
        Mount({"name": f"torchq-part-{part}", "configMap": {"name": name}}, f"{PARTS_PATH}/{part}")
        for part, name in enumerate(names(archive, copy), start=1)
    )


def content(part: Manifest) -> bytes:
    """Return the part of an archive that a ConfigMap has. Raises ValueError if the ConfigMap has no part."""
    try:
        return base64.b64decode(part["binaryData"][KEY], validate=True)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"binaryData.{KEY}: is no code in base64") from error


def join(short: str, parts: Iterable[bytes]) -> Archive:
    """Return the archive of some parts. Raises ValueError unless the digest of the archive begins with
    `short`.
    """
    whole = b"".join(parts)
    archive = Archive(whole, hashlib.sha256(whole).hexdigest(), files=0)
    if archive.short != short:
        raise ValueError(f"the ConfigMaps of code {short} have other content, or a part is missing")
    return archive


def owner_reference(job: JobKey) -> Manifest:
    """Return the owner reference that names a job as a user of an object. The job is not the controller, since an
    object has one controller only.
    """
    return TORCHJOBS.reference(job.name, job.uid)


def _slices(archive: Archive) -> list[bytes]:
    content = archive.content
    return [content[start : start + PART_BYTES] for start in range(0, len(content), PART_BYTES)]
