"""The scale requests: a ScaleOut adds workers to an elastic job, a ScaleIn removes workers.

One rule: the schema refuses only values that no job could ever need. A request that does not fit its job is stored, and
a worker marks it Failed with the reason.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from crds import labels, problems
from crds.api_resources import SCALE_INS, SCALE_OUTS, VERSION, Resource
from crds.label_names import DNS_LABEL
from crds.metadata import Metadata
from crds.model import LenientModel, StrictModel, Text, Time
from crds.torchjob.conditions import Condition
from crds.torchjob.status import MOST_AT_ONCE, PodName, Tally, WorkerIndexes

UNCHANGEABLE = "may not change: delete the request and create another one"
LARGEST = 2**31 - 1
Count = Annotated[int, Field(ge=-LARGEST - 1, le=LARGEST)]
"""A number of workers; one below 1 makes the request fail."""
RequestPhase = Literal["", "Pending", "Admitted", "Scaling", "Succeeded", "Failed"]
OVER: tuple[RequestPhase, ...] = ("Succeeded", "Failed")
PodNames = Annotated[tuple[PodName, ...], Field(max_length=MOST_AT_ONCE)]


class JobSelector(StrictModel):
    """The job that a request is about."""

    name: str = Field(max_length=63, pattern=DNS_LABEL)
    """The name of a TorchJob in the namespace of the request."""


class ToAdd(StrictModel):
    """The workers to add."""

    count: Count | None = None
    """The number of workers to add, at least 1."""


class ToDelete(StrictModel):
    """The workers to remove: either a number of them or their names."""

    count: Count | None = None
    """The number of workers to remove, at least 1. Workers that do not run yet are removed first, then failed ones,
    then those on nodes that are being drained, then those on spot nodes, then those with the highest index."""
    pod_names: Annotated[tuple[PodName, ...], Field(max_length=MOST_AT_ONCE)] = Field(default=(), strict=False)
    """The names of the pods of the workers to remove: exactly these are removed."""


class RequestSpec(StrictModel):
    """The fields that both kinds have."""

    selector: JobSelector
    task_type: Literal["Worker"] = "Worker"
    """The task whose number of pods is changed."""
    timeout_seconds: int = Field(default=600, ge=1, le=LARGEST)
    """The number of seconds after which a request that is not complete has failed. For a job that does not exist they
    begin with the creation of the request, otherwise when its turn comes."""
    ttl_seconds_after_finished: int = Field(default=600, ge=0, le=LARGEST)
    """The number of seconds after which a request that has succeeded or failed is deleted."""


class ScaleOutSpec(RequestSpec):
    """A number of workers that are added all or not at all."""

    to_add: ToAdd


class ScaleInSpec(RequestSpec):
    """Workers that are removed."""

    to_delete: ToDelete


class ScaleStatus(LenientModel):
    """The state of a scale request."""

    phase: RequestPhase = ""
    """Pending: other requests of the job come first, or the job does not exist. Admitted: the job's numTasks was
    changed. Scaling: pods are being added or removed. Succeeded or Failed: the request is over."""
    reason: Annotated[str, Field(max_length=64)] = ""
    """The reason for the phase, as a code."""
    message: Text = ""
    """The reason for the phase, as a sentence."""
    from_workers: Tally | None = Field(default=None, alias="from")
    """The number of workers that the job wanted before."""
    to: Tally | None = None
    """The number of workers that the job wants because of the request."""
    pods: PodNames = ()
    """The names of the pods that were added or removed, the first 1,000 of them."""
    job_generation: Tally = 0
    """The generation of the job whose numTasks the request changes. In a later generation, it has been changed."""
    indexes: WorkerIndexes | None = None
    """The indexes of the workers that the job had when the turn of the request came; absent if it had none."""
    start_time: Time | None = None
    """The time at which the turn of the request came."""
    completion_time: Time | None = None
    conditions: Annotated[tuple[Condition, ...], Field(max_length=8)] = ()


class ScaleOut(StrictModel):
    """A request to add workers to an elastic TorchJob."""

    api_version: Literal["train.distributed.io/v1alpha1"] = "train.distributed.io/v1alpha1"
    kind: Literal["ScaleOut"] = "ScaleOut"
    metadata: Metadata
    spec: ScaleOutSpec
    status: ScaleStatus = Field(default_factory=ScaleStatus)


class ScaleIn(StrictModel):
    """A request to remove workers from an elastic TorchJob."""

    api_version: Literal["train.distributed.io/v1alpha1"] = "train.distributed.io/v1alpha1"
    kind: Literal["ScaleIn"] = "ScaleIn"
    metadata: Metadata
    spec: ScaleInSpec
    status: ScaleStatus = Field(default_factory=ScaleStatus)


ScaleRequest = ScaleOut | ScaleIn
RESOURCES: Mapping[str, Resource] = {"ScaleOut": SCALE_OUTS, "ScaleIn": SCALE_INS}
"""The resource of each kind."""
MODELS: Mapping[str, type[ScaleOut] | type[ScaleIn]] = {"ScaleOut": ScaleOut, "ScaleIn": ScaleIn}
"""The model of each kind."""


def parse(manifest: Any) -> ScaleRequest:
    """Return a manifest as a request with defaults. Raise InvalidObject with every problem."""
    return problems.validate(MODELS.get(manifest.get("kind"), ScaleOut), manifest)


def manifest(kind: Literal["ScaleOut", "ScaleIn"], job: str, **spec: Any) -> dict[str, Any]:
    """Return the manifest of a new request for a job; the API server completes its name."""
    return {
        "apiVersion": f"{labels.GROUP}/{VERSION}",
        "kind": kind,
        "metadata": {"generateName": f"{job}-"},
        "spec": {"selector": {"name": job}, **spec},
    }
