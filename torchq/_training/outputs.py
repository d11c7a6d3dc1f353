"""`torchq.output`: the folder for files that outlive the pods.

One rule: a job without such a folder gets an error and never a folder that is deleted with the pod.
"""

from __future__ import annotations

import os
from pathlib import Path

from torchq._errors import Refused, TorchqError
from torchq._training import surroundings

LOCAL = "outputs"
"""The folder outside a job, in the current folder."""


def output() -> Path:
    """Return the folder for checkpoints, models and other files of this job, which outlives its pods. It exists.

    All pods of a job share this folder, through restarts. On one machine every job has such a folder; on Kubernetes the
    folder is on the claim that `outputs` names. Outside a job it is the folder `outputs` in the current folder, which
    git ignores.

    Raises Refused in a job that has no such folder.
    """
    named = os.environ.get(surroundings.OUTPUT)
    if named:
        return create(Path(named))
    if surroundings.is_in_job(os.environ):
        raise Refused(
            "this job has no folder that outlives its pods: name a claim with torchq.run(..., outputs=CLAIM), with "
            "`torchq run --outputs CLAIM`, or in spec.outputs.claimName of the TorchJob"
        )
    folder = Path(LOCAL).absolute()
    if folder.is_dir():
        return folder
    create(folder)
    # The next job must not inherit the files that this run writes.
    (folder / ".gitignore").write_text("*\n")
    return folder


def create(folder: Path) -> Path:
    """Create a folder for files of the job, unless it exists, and return it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TorchqError(f"the folder for outputs {folder} cannot be made: {error.strerror}") from error
    return folder
