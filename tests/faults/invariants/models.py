"""Whether each job that trains a model has one ModelVersion once it has succeeded, and none when it has failed."""

from collections import Counter
from collections.abc import Iterator

from crds.api_resources import MODEL_VERSIONS, TORCHJOBS
from tests.faults.api import Api


def problems(api: Api) -> Iterator[str]:
    """Yield the messages about everything that is wrong now."""
    if not api.serves(MODEL_VERSIONS):
        return
    made = Counter(each.manifest()["spec"]["createdByUid"] for each in api.objects(MODEL_VERSIONS))
    for stored in api.objects(TORCHJOBS):
        job = stored.manifest()
        phase, count = (job.get("status") or {}).get("phase"), made[job["metadata"]["uid"]]
        wanted = phase == "Succeeded" and "modelOutput" in job["spec"]
        if count > 1 or (wanted and count != 1) or (count and phase == "Failed"):
            yield f"job {stored.name} is {phase} and has {count} model versions"
