"""Calls about the files that a job writes to `torchq.output()`.

One rule: files are copied only from the folder of the job; a link that leads out of it is left out.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coordinator.cli import job_ref
from coordinator.cli.rpc.call_context import ClusterAccess, OpenCall, Params
from coordinator.follow import new_files
from coordinator.local import job_files
from crds.keys import JobKey
from kube.api import Manifest
from torchq._errors import Invalid, NotFound, Refused


def outputs(access: ClusterAccess, params: Params, _call: OpenCall) -> dict[str, Any]:
    """Return where the files of a job are: the folder on this machine, or the claim and the path in the claim."""
    return place_of(access, job_ref.find(access.session, params["job"]))


def place_of(access: ClusterAccess, item: Manifest) -> dict[str, Any]:
    """Return where the files of a job are. Raises Refused for a job that has no such place."""
    key = job_ref.key(item)
    own = own_folder(key)
    data = access.session.target.data
    if data is not None:
        return {"folder": str(data / job_files.OUTPUTS / own)}
    claim = (item["spec"].get("outputs") or {}).get("claimName")
    if not claim:
        raise Refused(
            f"job {key.namespace}/{key.name} has no place for files: name a PersistentVolumeClaim with `outputs` "
            "when it is submitted"
        )
    return {"claim": claim, "namespace": key.namespace, "path": own}


def own_folder(key: JobKey) -> str:
    """Return the folder of a job among the folders of all jobs."""
    return f"{key.namespace}/{key.name}-{key.uid}"


def download(access: ClusterAccess, params: Params, call: OpenCall) -> list[str]:
    """Copy the files that match a pattern, and return their names; include the remaining files beside the code.

    Raises Refused if the files cannot be read from this machine.
    """
    item = job_ref.find(access.session, params["job"])
    place = place_of(access, item)
    if "folder" not in place:
        raise Refused(
            f"the files are in the claim {place['claim']} of namespace {place['namespace']}, under {place['path']}, "
            "which cannot be read from here: mount the claim in a pod, as kubectl cp needs it"
        )
    outputs, target = Path(place["folder"]), Path(params.get("to", "."))
    beside = new_files.read(access.session.cluster, job_ref.key(item))
    if not outputs.is_dir() and beside is None:
        raise NotFound(f"the job has no files: {outputs} does not exist")
    copied: list[str] = []
    # A file of torchq.output() takes precedence over a file of the same name beside the code.
    for source in (outputs, *([beside.folder] if beside is not None else [])):
        for path in _matching(source, params.get("pattern", "**")):
            name = str(path.relative_to(source))
            if call.is_cancelled:
                return copied
            if name not in copied and (source == outputs or (beside is not None and name in beside.sizes)):
                _copy(path, target / name)
                copied.append(name)
    return copied


def _matching(source: Path, pattern: str) -> Iterator[Path]:
    """Yield the regular files of a folder that match; a folder that matches stands for all files in it."""
    if not pattern or pattern.startswith("/") or ".." in Path(pattern).parts:
        raise Invalid(f"pattern: must be a pattern inside the job's folder, as in '**/*.pt', not {pattern!r}")
    root = source.resolve()
    found = set()
    for path in source.glob(pattern):
        found |= {each for each in path.rglob("*") if each.is_file()} if path.is_dir() else {path}
    yield from sorted(each for each in found if each.is_file() and each.resolve().is_relative_to(root))


def _copy(path: Path, target: Path) -> None:
    """Copy a file so that its name never stands for a part of the content."""
    part = target.with_name(f".{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, part)
        os.replace(part, target)
    except OSError as error:
        raise Refused(f"{target} cannot be written: {error.strerror}") from error
