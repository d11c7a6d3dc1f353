"""The ModelVersion: the record of what one TorchJob has trained, and of where the files are.

One rule: a record is whole when it is created, and nothing changes its spec. The kind has no status subresource, so one
request creates spec and status.

torch-on-k8s and KubeDL have the same kind. Their ModelVersions can be stored here; their fields about images are kept
as notes, because torchq builds no image.
"""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from crds.api_resources import MODEL_VERSIONS
from crds.metadata import Metadata, NamedMetadata
from crds.model import LenientModel, Time
from crds.torchjob.status import MOST_RESULT
from crds.trained_models import LONGEST_MODEL_PATH, MODEL_PATH, ClaimName

UNCHANGEABLE = "may not change: a ModelVersion is a record of what was trained"
FEWEST_CHARACTERS = 5
"""The least number of characters of a job's uid in the name of a version."""
LONGEST_NOTE = 1024
Note = Annotated[str, Field(max_length=LONGEST_NOTE)]


class ModelVersionName(NamedMetadata):
    """The rules for a version's name."""

    name: str = Field(max_length=253)


class ModelVersionSpec(LenientModel):
    """Where a version comes from, and where its files are."""

    model_name: Note = ""
    """The name that all versions of a model share."""
    version: Note = ""
    """The name of this version among the versions of the model: the first characters of the uid of the job."""
    created_by: Note = ""
    """The name of the TorchJob, in the namespace of the version."""
    created_by_uid: Note = ""
    """The uid of the TorchJob."""
    queue: Note = ""
    """The tenant queue that has paid for the job."""
    claim_name: ClaimName | None = None
    """The PersistentVolumeClaim with the files; absent if the files are on the machine of an embedded cluster."""
    path: Annotated[str, Field(max_length=LONGEST_MODEL_PATH, pattern=f"^({MODEL_PATH})?$")] = ""
    """The folder of the files in the claim, or among the outputs of the embedded cluster."""
    code: Note = ""
    """The digest of the code of the job, if `torchq run` has sent it."""
    image: Note = ""
    """The image of the training container."""
    nodes: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """The number of pods of the job that could write to the folder."""
    storage: Annotated[
        dict[str, Any] | None, Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})
    ] = None
    """A note of versions that torch-on-k8s or KubeDL have made."""
    image_repo: Note = ""
    """A note of versions that torch-on-k8s or KubeDL have made."""
    image_tag: Note = ""
    """A note of versions that torch-on-k8s or KubeDL have made."""


class ModelVersionStatus(LenientModel):
    """What the job has said about the files at its end."""

    files: Annotated[int, Field(ge=0)] | None = None
    """The number of files in the folder when rank 0 ended; absent if nobody has counted them."""
    bytes: Annotated[int, Field(ge=0)] | None = None
    """The bytes of these files."""
    digest: Annotated[str, Field(max_length=128)] = ""
    """The SHA-256 of these files, as `sha256:HEX`; empty if nobody has computed it."""
    result: Annotated[str, Field(max_length=MOST_RESULT)] = ""
    """The result of the job as JSON, as in the status of the job."""
    finish_time: Time | None = None
    """The time at which the job succeeded."""
    image: Note = ""
    """A note of versions that torch-on-k8s or KubeDL have made."""
    image_build_phase: Note = ""
    """A note of versions that torch-on-k8s or KubeDL have made."""
    message: Note = ""
    """A note of versions that torch-on-k8s or KubeDL have made."""


class ModelVersion(LenientModel):
    """A version of a model: which job has trained it, and where the files are."""

    metadata: Metadata
    spec: ModelVersionSpec = ModelVersionSpec()
    status: ModelVersionStatus = ModelVersionStatus()

    @property
    def label(self) -> str:
        """The name of the version for people and options: MODEL@VERSION. The name of the object stands in place of a
        version that has no name of its own."""
        return f"{self.spec.model_name}@{self.spec.version or self.metadata.name}"


def versions(uid: str) -> Iterator[str]:
    """Yield the names that the version of a job may have, the shortest first. The last one is the whole uid."""
    characters = uid.replace("-", "")
    for length in range(min(FEWEST_CHARACTERS, len(characters)), len(characters) + 1):
        yield characters[:length]


def manifest(spec: ModelVersionSpec, status: ModelVersionStatus) -> dict[str, Any]:
    """Return the manifest of the version that `spec` names."""
    return MODEL_VERSIONS.manifest({"name": f"{spec.model_name}-{spec.version}"}, spec=_set(spec), status=_set(status))


def _set(part: LenientModel) -> dict[str, Any]:
    return {name: value for name, value in part.manifest().items() if value != ""}
