"""TorchJobs as an API server sends them: thousands that ask for the same, each many times.

One rule: the answer is that of `torchjob.parse`. What many jobs have in common is judged once and shared by them; of
what is wrong nothing is remembered but that it is.
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
from crds.torchjob.size_limits import Long
from crds.torchjob.torchjob import JobName, TorchJob

REMEMBERED = 512
"""Specs that are kept."""
LONGEST = 16 * 1024
"""Bytes of JSON of the longest one that is kept."""
_OWN = ("schedulingPolicy", "suspend")
"""What jobs that ask for the same may differ in: no other field of the spec has to agree with these."""


@dataclass(frozen=True, slots=True)
class _Shared:
    """What is the same for many jobs."""

    spec: TorchJobSpec
    """Without what is a job's own."""
    longest_name: int
    """Characters a job's name may have, so that its pods' names are not too long."""


def parse(manifest: Any) -> TorchJob:
    """A manifest of JSON values as a TorchJob, defaults applied. InvalidObject with every problem found."""
    if not isinstance(manifest, Long):
        return _recalled(manifest) or torchjob.parse(manifest)
    large, metadata = size_limits.problem(manifest), manifest.get("metadata")
    if large is not None:
        raise InvalidObject((large,))
    return torchjob.parse(
        {**manifest, "metadata": size_limits.slim(metadata)} if isinstance(metadata, dict) else manifest
    )


def _recalled(manifest: Any) -> TorchJob | None:
    """The job, if it is sound and so is what it shares with others; None if it has to be looked at as a whole."""
    match manifest:
        case {"metadata": {"name": str(name)} as metadata, "spec": dict(spec)} if not size_limits.is_long(metadata):
            shared = _of(spec)
        case _:
            return None
    if shared is None or len(name) > shared.longest_name:
        return None
    try:
        JobName(name=name)
        return TorchJob.model_validate({**manifest, "spec": shared.spec}, by_alias=True, by_name=False)
    except ValidationError:
        return None


def _of(spec: dict[Any, Any]) -> _Shared | None:
    own = {name: spec[name] for name in _OWN if name in spec}
    try:
        texts = orjson.dumps({name: value for name, value in spec.items() if name not in own}), orjson.dumps(own)
    except orjson.JSONEncodeError:  # nested too deep, or never read from JSON
        return None
    return _with_own(*texts) if sum(map(len, texts)) <= LONGEST else None


@lru_cache(4 * REMEMBERED)
def _with_own(text: bytes, own: bytes) -> _Shared | None:
    """The same with what is a job's own: the jobs of one queue mostly agree in that too."""
    shared, found = _shared(text), orjson.loads(own)
    if shared is None or type(found.get("suspend", False)) is not bool:
        return None
    if "schedulingPolicy" in found:
        try:
            policy = SchedulingPolicy.model_validate(found.pop("schedulingPolicy"), by_alias=True, by_name=False)
        except ValidationError:
            return None
        found["scheduling_policy"] = policy
    return replace(shared, spec=shared.spec.model_copy(update=found))


@lru_cache(REMEMBERED)
def _shared(text: bytes) -> _Shared | None:
    """None if no job can be sound with it."""
    try:
        spec = TorchJobSpec.model_validate(orjson.loads(text), by_alias=True, by_name=False)
    except ValidationError:
        return None
    if any(checks.check(Metadata(), spec)) or any(demand.countable(spec)):
        return None
    # All that is worked out of it is worked out once: copies have it too.
    _ = spec.charge, spec.wants_port, spec.claims
    longest = max(len(checks.pod_name("", name, task.num_tasks - 1)) for name, task in spec.tasks.items())
    return _Shared(spec, checks.MAX_POD_NAME - longest)
