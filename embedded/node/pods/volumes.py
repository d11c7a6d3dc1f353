"""The folders of a pod's volumes, and the files that the node writes into these folders.

One rule: a file is replaced as a whole, so that a reader sees the old content or the new content and never a part.
"""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from embedded import config_sources, downward, pod_requirements
from embedded.config_sources import ConfigObjects
from embedded.layout import Layout
from embedded.pod import LocalPod
from embedded.volume_files import File

_DRAFT = ".draft"


class Volumes:
    """The volumes of one pod."""

    def __init__(self, layout: Layout, pod: LocalPod) -> None:
        self._layout = layout
        self._uid = pod.uid
        self._job = pod.job
        self._published: dict[Path, File] = {}

    def folder(self, volume: Mapping[str, Any]) -> Path:
        """Return the folder of a volume on this machine; create it if it belongs to the pod.

        Raise OSError on failure, and ValueError if the pod cannot have the volume.
        """
        if volume.get("hostPath"):
            return Path(volume["hostPath"]["path"])
        if pod_requirements.is_output(volume):
            return self.output(volume["name"])
        folder = self._layout.volume(self._uid, volume["name"])
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    def output(self, volume: str) -> Path:
        """Return the folder of the pod's job that outlives the pod; create it.

        Raise OSError on failure, and ValueError if the pod belongs to no TorchJob.
        """
        if self._job is None:
            raise ValueError(f"volume {volume} exists for pods of TorchJobs only")
        folder = self._layout.output(self._job)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    def models(self, pod: LocalPod, container: Mapping[str, Any]) -> dict[str, str]:
        """Return the folders of the models that a container reads, by the paths of their mounts.

        Raise ValueError if a folder is missing, or is not among those of the pod's namespace.
        """
        mounts = filter(pod_requirements.is_model, container.get("volumeMounts") or ())
        return {mount["mountPath"]: str(self._model(pod.namespace, mount["subPath"])) for mount in mounts}

    def _model(self, namespace: str, path: str) -> Path:
        own = (self._layout.outputs / namespace).resolve()
        folder = (self._layout.outputs / path).resolve()
        if not folder.is_relative_to(own):
            raise ValueError(f"the model at {path} is not among the outputs of namespace {namespace}")
        if not folder.is_dir():
            raise ValueError(f"the model at {path} has no files: its job wrote none, or they were deleted")
        return folder

    def set_up(self, pod: LocalPod, objects: ConfigObjects) -> None:
        """Write the files of configMap volumes, which stay unchanged as long as the pod exists.

        Raise NotReady if an object or key is missing, and OSError if the machine refuses.
        """
        volumes = [volume for volume in pod.spec.get("volumes") or () if volume.get("configMap")]
        contents = [(volume, config_sources.files(volume, pod.namespace, objects)) for volume in volumes]
        for volume, files in contents:
            with suppress(FileNotFoundError):  # an earlier node process may have written files of an older ConfigMap
                shutil.rmtree(self._layout.volume(self._uid, volume["name"]))
            folder = self.folder(volume)
            for file in files:
                self._write(folder / file.path, file)

    def publish(self, pod: LocalPod) -> None:
        """Write the files of downwardAPI volumes whose metadata has changed. Raise OSError on failure."""
        for volume in pod.spec.get("volumes") or ():
            if volume.get("downwardAPI") is None:
                continue
            folder = self.folder(volume)
            for file in downward.files(volume, pod.manifest["metadata"]):
                if self._published.get(folder / file.path) != file:
                    # A pod runs as the user of the node, and one of these files may have the job's token.
                    self._write(folder / file.path, replace(file, mode=file.mode & 0o700))
                    self._published[folder / file.path] = file

    def _write(self, path: Path, file: File) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = self._layout.pod(self._uid) / _DRAFT  # outside the volume, so that no container lists it
        draft.unlink(missing_ok=True)  # a mode without write access would keep the next file from being written
        draft.write_bytes(file.content)
        os.chmod(draft, file.mode)
        draft.rename(path)
