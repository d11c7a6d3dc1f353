"""A cache in front of `torchjob.parse`: an API server sends thousands of jobs with equal specs, each job many times.

One rule: the result is the same as that of `torchjob.parse`. The spec that many jobs share is validated once. Of an
invalid spec, only the fact that it is invalid is cached.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import orjson
from pydantic import ValidationError

from crds.errors import InvalidObject
from crds.metadata import Metadata
from crds.torchjob import checks, demand, size_limits, torchjob
from crds.torchjob.jobspec import SchedulingPolicy, TorchJobSpec
from crds.torchjob.size_limits import LargeObject
from crds.torchjob.torchjob import JobName, TorchJob

REMEMBERED = 512
"""Maximum number of cached specs."""
LONGEST = 16 * 1024
"""Maximum size of a cached spec, in bytes of JSON."""
_JOB_FIELDS = ("schedulingPolicy", "suspend")
"""The fields in which jobs with a shared spec may differ: no validation combines them with another field."""


@dataclass(frozen=True, slots=True)
class _SharedSpec:
    """A valid spec that many jobs share."""

    spec: TorchJobSpec
    """The spec without the fields in _JOB_FIELDS, or with those of one job."""
    longest_name: int
    """Maximum number of characters of a job's name, so that the names of its pods are not too long."""


def parse(manifest: Any) -> TorchJob:
    """Return a manifest of JSON values as a TorchJob with defaults. Raise InvalidObject with every problem."""
    if not isinstance(manifest, LargeObject):
        return _parse_shared(manifest) or torchjob.parse(manifest)
    large, metadata = size_limits.problem(manifest), manifest.get("metadata")
    if large is not None:
        raise InvalidObject((large,))
    return torchjob.parse(
        {**manifest, "metadata": size_limits.trim_metadata(metadata)} if isinstance(metadata, dict) else manifest
    )


def _parse_shared(manifest: Any) -> TorchJob | None:
    """Return the job if its name and its shared spec are valid; None if the whole manifest has to be parsed."""
    match manifest:
        case {"metadata": {"name": str(name)} as metadata, "spec": dict(spec)} if not size_limits.has_long_metadata(
            metadata
        ):
            shared = _shared_spec(spec)
        case _:
            return None
    if shared is None or len(name) > shared.longest_name:
        return None
    try:
        JobName(name=name)
        return TorchJob.model_validate({**manifest, "spec": shared.spec}, by_alias=True, by_name=False)
    except ValidationError:
        return None


def _shared_spec(spec: dict[Any, Any]) -> _SharedSpec | None:
    job_fields = {name: spec[name] for name in _JOB_FIELDS if name in spec}
    try:
        texts = (
            orjson.dumps({name: value for name, value in spec.items() if name not in job_fields}),
            orjson.dumps(job_fields),
        )
    except orjson.JSONEncodeError:  # nested too deeply, or not made of JSON values
        return None
    return _shared_with_policy(*texts) if sum(map(len, texts)) <= LONGEST else None


@lru_cache(4 * REMEMBERED)
def _shared_with_policy(text: bytes, job_text: bytes) -> _SharedSpec | None:
    """Return a shared spec with the job's own fields; most jobs of one queue agree in these, too."""
    shared, job_fields = _parse_spec(text), orjson.loads(job_text)
    if shared is None or type(job_fields.get("suspend", False)) is not bool:
        return None
    if "schedulingPolicy" in job_fields:
        try:
            policy = SchedulingPolicy.model_validate(job_fields.pop("schedulingPolicy"), by_alias=True, by_name=False)
        except ValidationError:
            return None
        job_fields["scheduling_policy"] = policy
    return replace(shared, spec=shared.spec.model_copy(update=job_fields))


@lru_cache(REMEMBERED)
def _parse_spec(text: bytes) -> _SharedSpec | None:
    """Return the shared spec of a JSON text, or None if no job with this spec is valid."""
    try:
        spec = TorchJobSpec.model_validate(orjson.loads(text), by_alias=True, by_name=False)
    except ValidationError:
        return None
    if any(checks.check(Metadata(), spec)) or any(demand.charge_problems(spec)):
        return None
    # These cached properties are computed once here, because copies of the spec inherit them.
    _ = spec.charge, spec.least_charge, spec.worker_share, spec.beyond_gangs
    _ = spec.wants_port, spec.chosen_ports, spec.claims, spec.first_pods
    longest = max(len(checks.pod_name("", name, task.num_tasks - 1)) for name, task in spec.tasks.items())
    return _SharedSpec(spec, checks.MAX_POD_NAME - longest)
