"""The models of jobs, in the spec of a TorchJob and in the words of its pods: what it trains, what it reads, and what
rank 0 has counted.
"""

from typing import Annotated

from pydantic import Field

from crds.model import LenientModel, Name, StrictModel

CLAIM_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
"""RFC 1123: the name of a PersistentVolumeClaim."""
ClaimName = Annotated[str, Field(max_length=253, pattern=CLAIM_NAME)]
MOST_MODELS = 8
"""The number of models that a job reads."""
LONGEST_MODEL_PATH = 512
_PART = r"[^/.\x00-\x1f][^/\x00-\x1f]*"
MODEL_PATH = rf"{_PART}(/{_PART})*"
"""A relative path of which no part is empty or begins with a dot: it leads out of no folder, and each folder has one
path."""


class ModelOutput(StrictModel):
    """The model that the job trains."""

    model_name: Name
    """The name that all versions of the model share. A job that succeeds makes a ModelVersion of this name."""


class ModelInput(StrictModel):
    """A version of a model that the job reads; `torchq run --with-model` fills in the fields."""

    model_name: Name
    """The name of the model. Its files are at /torchq/models/NAME in all containers, read-only."""
    version: Name
    """The version, for people: the files are found by claim and path."""
    claim_name: ClaimName | None = None
    """The PersistentVolumeClaim with the files; absent if the files are on the machine of an embedded cluster."""
    path: Annotated[str, Field(max_length=LONGEST_MODEL_PATH, pattern=f"^{MODEL_PATH}$")]
    """The folder of the files in the claim, which is below the folder of the job's namespace."""
    digest: Annotated[str, Field(max_length=128)] = ""
    """The digest of the files when the version was made, for programs that check it."""


class ModelFiles(LenientModel):
    """The files in the folder of a job's model, as rank 0 has counted them at its end."""

    files: Annotated[int, Field(ge=0)]
    bytes: Annotated[int, Field(ge=0)]
    digest: Annotated[str, Field(max_length=128)] = ""
    """The SHA-256 of the files, as `sha256:HEX`; empty if it was not computed."""
