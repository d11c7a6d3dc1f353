"""Where the files of a ModelVersion are: a folder of this machine, or a claim and a path in it.

One rule: a folder is deleted only if it is among the outputs of the namespace of its ModelVersion, through no link.
"""

import shutil
from pathlib import Path, PurePosixPath
from typing import Any

from coordinator.errors import CoordinatorError
from coordinator.local import job_files
from crds.model_version import ModelVersion


class NoPlace(CoordinatorError):
    """The files of a version are nowhere that torchq knows."""


class NotDeleted(CoordinatorError):
    """Some files of a version whose record is deleted could not be deleted."""


def place(version: ModelVersion, data: Path | None) -> dict[str, Any]:
    """Return where the files are. `data` is the data folder of the embedded cluster; None on any other cluster.

    Raises NoPlace.
    """
    spec = version.spec
    if data is not None and spec.path:
        found = folder(version, data)
        if not found.is_dir():
            raise NoPlace(f"{version.label} has no files in {found}: its job wrote none there, or they were deleted")
        return {"folder": str(found)}
    if not spec.path or not spec.claim_name:
        raise NoPlace(f"{version.label}: its ModelVersion does not say where the files are")
    return {"claim": spec.claim_name, "namespace": version.metadata.namespace, "path": spec.path}


def folder(version: ModelVersion, data: Path) -> Path:
    """Return the folder on this machine. Raises NoPlace for a path that leads out of the outputs of the namespace."""
    namespace, _, rest = version.spec.path.partition("/")
    own = (data / job_files.OUTPUTS / namespace).resolve()
    found = own / rest
    if namespace != version.metadata.namespace or not rest or found.resolve() != found:
        raise NoPlace(
            f"{version.label}: {version.spec.path} is not among the outputs of {version.metadata.namespace}, or leads "
            "through a link"
        )
    return found


def meets(version: ModelVersion, path: str, claim: str | None, *, on_machine: bool) -> bool:
    """Return whether a folder is that of a version, or one of the two is in the other. Without `on_machine`, folders of
    different claims never meet."""
    if not (path and version.spec.path) or not (on_machine or claim == version.spec.claim_name):
        return False
    one, other = PurePosixPath(version.spec.path), PurePosixPath(path)
    return one.is_relative_to(other) or other.is_relative_to(one)


def describe(where: dict[str, Any]) -> str:
    """Return a place in words; for a folder only its path."""
    if "folder" in where:
        return str(where["folder"])
    return f"claim {where['claim']} of namespace {where['namespace']}, path {where['path']}"


def remove(path: Path) -> None:
    """Delete a folder with all files, if it exists. Raises NotDeleted."""
    try:
        if path.is_dir():
            shutil.rmtree(path)
    except OSError as error:
        raise NotDeleted(f"some files stay in {path}, and nothing names them any more; delete them: {error}") from error
