"""What a sight of a pod says about the rows of the history.

One rule: a pod has a row only from the end of its job on, because until then the job itself is charged for it. So a job
that is deleted, or ends with `cleanPodPolicy: None`, is charged as long as its pods take room.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from crds import holds, integers, labels, owners
from history.rows import PodRow
from history.sightings import untrusted
from history.sightings.untrusted import items, mapping, moment, text

FINISHED = ("Succeeded", "Failed")
JOB = "job"
"""The field of a trimmed pod with the uid of its job."""


def trim_pod(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a pod that its row needs. A pod of no job has an empty `job`."""
    metadata, status = mapping(manifest.get("metadata")), mapping(manifest.get("status"))
    trimmed: dict[str, Any] = {
        "metadata": untrusted.trim_metadata(manifest, (labels.CHARGE,)),
        JOB: text(manifest.get(JOB)) or owners.job_uid(metadata),
    }
    trimmed["metadata"]["labels"] = {labels.QUEUE: mapping(metadata.get("labels")).get(labels.QUEUE)}
    return trimmed | {"status": {"phase": status.get("phase"), "ended": status.get("ended") or _ended(status)}}


def of_pod(
    pod: Mapping[str, Any], job_end: int | None, seen: int, gone: int | None = None, *, is_open: bool = False
) -> PodRow | None:
    """Return the row of a pod, as `trim_pod` returns it; None while its job is charged for it, and if it ended before.

    `job_end` is when its job ended, None if it has not; `gone` is when the pod was deleted. `is_open` is whether a row
    without an end was written: where clocks differ, it is closed though the pod ended before its job.
    """
    metadata, status = mapping(pod.get("metadata")), mapping(pod.get("status"))
    if job_end is None or not pod.get(JOB):
        return None
    start = max(job_end, moment(metadata.get("creationTimestamp")) or 0)
    end = gone
    if status.get("phase") in FINISHED:
        ended = moment(status.get("ended"))
        end = min(seen if ended is None else ended, seen if gone is None else gone)
    if end is not None and end <= start and not is_open:
        return None
    return PodRow(
        uid=text(metadata.get("uid")),
        version=integers.parse(metadata.get("resourceVersion"), 0),
        job=text(pod[JOB]),
        namespace=text(metadata.get("namespace")),
        queue=text(mapping(metadata.get("labels")).get(labels.QUEUE)),
        start=start,
        end=None if end is None else max(start, end),
        charge=_charge(mapping(metadata.get("annotations")).get(labels.CHARGE)),
    )


def _charge(annotation: object) -> dict[str, int]:
    try:
        found = orjson.loads(annotation) if isinstance(annotation, str) else None
    except orjson.JSONDecodeError:
        return {}
    return holds.bounded(untrusted.amounts(found))[0]


def _ended(status: Mapping[str, Any]) -> str | None:
    """Return when the last container of a pod ended, else when its conditions changed last; None if nothing says it."""
    containers = [*items(status.get("containerStatuses")), *items(status.get("initContainerStatuses"))]
    ends = [mapping(mapping(mapping(each).get("state")).get("terminated")).get("finishedAt") for each in containers]
    changes = [mapping(each).get("lastTransitionTime") for each in items(status.get("conditions"))]
    times = [time for time in ends if moment(time) is not None] or [
        time for time in changes if moment(time) is not None
    ]
    return max(times, key=lambda time: moment(time) or 0, default=None)
