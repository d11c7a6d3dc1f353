"""A restart that a job's owner asks for, in an annotation of the TorchJob.

One rule: a request is obeyed once, by its id; one that makes no sense is none, which its sender is told before it is
sent.
"""

from typing import Annotated, Literal

from pydantic import Field, ValidationError

from crds import labels
from crds.model import Written
from crds.torchjob.tasks import TaskType
from crds.torchjob.torchjob import TorchJob


class RestartRequest(Written):
    """What is to be restarted, and how."""

    id: Annotated[str, Field(min_length=1, max_length=64)]
    task: TaskType | None = None
    """Pods of this task only; the whole job if absent."""
    index: Annotated[int, Field(ge=0, le=9_999)] | None = None
    """This pod of the task only."""
    how: Literal["", "InPlace", "Recreate"] = ""
    """In place: the containers, where the installation can; else new pods. Empty: as the installation is set."""


def requested(job: TorchJob) -> RestartRequest | None:
    """The request that was not obeyed yet; None if there is none."""
    text = job.metadata.annotations.get(labels.RESTART_REQUEST, "")
    try:
        found = RestartRequest.model_validate_json(text) if text else None
    except ValidationError:
        return None
    return None if found is None or found.id == job.status.restart_request else found
