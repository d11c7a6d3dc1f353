"""The folders of a pod's volumes, and the files the node keeps in them.

One rule: a file is there whole or not at all, and newer than the one before; whoever reads it never sees a half.
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
        """Where a volume is on this machine; made if it is the pod's own. OSError."""
        if volume.get("hostPath"):
            return Path(volume["hostPath"]["path"])
        folder = self._layout.volume(self._uid, volume["name"])
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    def publish(self, pod: LocalPod) -> None:
        """Bring the files of downwardAPI volumes up to the pod's metadata. OSError."""
        for volume in pod.spec.get("volumes") or ():
            if volume.get("downwardAPI") is None:
                continue
            folder = self.folder(volume)
            for file in downward.files(volume, pod.manifest["metadata"]):
                if self._published.get(folder / file.path) != file:
                    self._write(folder / file.path, file)

    def _write(self, place: Path, file: File) -> None:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = self._layout.pod(self._uid) / _DRAFT  # not in the volume: who lists it sees no drafts
        draft.write_text(file.text, encoding="utf-8")
        os.chmod(draft, file.mode)
        draft.rename(place)
        self._published[place] = file
