"""The files in a pod that follow the annotations of the pod, for code that reads files and needs no package of torchq.

One rule: pure, over fresh copies of templates. A volume of a template with the same name stays as it is, and then the
pod has none of these files.

The node writes the files before it starts a container, and again when an annotation changes. Any account may read them,
and they need no writable root file system.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconcilers.views import containers

VOLUME = "torchq-pod"
FOLDER = "/torchq/pod"
VARIABLE = "TORCHQ_VOLUME_TORCHQ_POD"
"""The variable with the folder's path on a node that has no mounts of its own."""


@dataclass(frozen=True, slots=True)
class PodFile:
    """A file of a pod."""

    annotation: str
    """The annotation that is its content."""
    is_program: bool = False

    def item(self, path: str) -> dict[str, Any]:
        """Return the file as an item of a volume."""
        mode = {"mode": 0o555} if self.is_program else {}
        return {"path": path, "fieldRef": {"fieldPath": f"metadata.annotations['{self.annotation}']"}, **mode}


def path(file: str) -> str:
    """Return the path of a file, as the value of a variable that stands after `VARIABLE`."""
    return f"$({VARIABLE})/{file}"


def add_files(spec: dict[str, Any], files: Mapping[str, PodFile]) -> Mapping[str, str]:
    """Add files to all containers, by their names. Return the variable that names their folder; nothing if there are
    no files."""
    volumes = spec.get("volumes") or []
    if not files or any(volume.get("name") == VOLUME for volume in volumes):
        return {}
    items = [file.item(name) for name, file in files.items()]
    spec["volumes"] = [*volumes, {"name": VOLUME, "downwardAPI": {"items": items}}]
    for container in containers.all_containers(spec):
        mounts = container.get("volumeMounts") or []
        container["volumeMounts"] = [*mounts, {"name": VOLUME, "mountPath": FOLDER, "readOnly": True}]
    return {VARIABLE: FOLDER}
