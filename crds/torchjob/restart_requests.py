"""A restart that a user requests in an annotation of the TorchJob.

One rule: a request is carried out once; its id identifies it. An invalid request is ignored; the command line refuses
it before it is sent.
"""

from typing import Annotated, Literal

from pydantic import Field, ValidationError

from crds import labels
from crds.model import StrictModel
from crds.torchjob.tasks import TaskType
from crds.torchjob.torchjob import TorchJob


class RestartRequest(StrictModel):
    """The pods to restart, and the kind of restart."""

    id: Annotated[str, Field(min_length=1, max_length=64)]
    task: TaskType | None = None
    """The task whose pods are restarted; the whole job if absent."""
    index: Annotated[int, Field(ge=0, le=9_999)] | None = None
    """The index of the only pod of the task that is restarted; all its pods if absent."""
    how: Literal["", "InPlace", "Recreate"] = ""
    """InPlace restarts the containers if the installation supports it, Recreate replaces the pods. If empty, the
    installation's setting applies."""


def pending_request(job: TorchJob) -> RestartRequest | None:
    """Return the request that was not carried out yet; None if there is no such request."""
    text = job.metadata.annotations.get(labels.RESTART_REQUEST, "")
    try:
        request = RestartRequest.model_validate_json(text) if text else None
    except ValidationError:
        return None
    return None if request is None or request.id == job.status.restart_request else request
