"""The folders of a pod's volumes, and the files that the node writes into them.

One rule: a file is replaced as a whole, so that a reader sees the old content or the new one and never a part.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embedded import downward
from embedded.downward import File
from embedded.layout import Layout
from embedded.pod import LocalPod

_DRAFT = ".downward"


class Volumes:
    """The volumes of one pod."""

    def __init__(self, layout: Layout, uid: str) -> None:
        self._layout = layout
        self._uid = uid
        self._published: dict[Path, File] = {}

    def folder(self, volume: Mapping[str, Any]) -> Path:
        """Return the folder of a volume on this machine; create it if it belongs to the pod.

        Raise OSError if that fails.
        """
        if volume.get("hostPath"):
            return Path(volume["hostPath"]["path"])
        folder = self._layout.volume(self._uid, volume["name"])
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    def publish(self, pod: LocalPod) -> None:
        """Write the files of downwardAPI volumes whose metadata has changed. Raise OSError if that fails."""
        for volume in pod.spec.get("volumes") or ():
            if volume.get("downwardAPI") is None:
                continue
            folder = self.folder(volume)
            for file in downward.files(volume, pod.manifest["metadata"]):
                if self._published.get(folder / file.path) != file:
                    self._write(folder / file.path, file)

    def _write(self, path: Path, file: File) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = self._layout.pod(self._uid) / _DRAFT  # outside the volume, so that no container lists it
        draft.write_text(file.text, encoding="utf-8")
        os.chmod(draft, file.mode)
        draft.rename(path)
        self._published[path] = file
