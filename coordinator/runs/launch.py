"""The submission of a job that has its code.

One rule: nothing half. The job is created on hold, then its code is kept with the job as its owner, then the job is let
go. A program that dies in between leaves at most a job on hold; a program that is interrupted deletes the job again.
"""

import contextlib
import time
from typing import Any

from coordinator.code.archive import Archive
from coordinator.code.stores import CodeStore, Mounts
from coordinator.runs import manifest, submitter
from coordinator.runs.errors import PartlyStarted
from crds import labels
from crds.api_resources import TORCHJOBS
from crds.keys import JobKey
from crds.torchjob import submission_order
from kube import errors
from kube.api import Cluster, Manifest

REPLACE_SECONDS = 60.0
REPLACE_PAUSE_SECONDS = 0.2
_REFUSALS = (errors.AlreadyExists, errors.Forbidden, errors.Invalid, errors.NotFound, errors.Unauthorized)
"""Answers to a create that leave no doubt: there is no job."""


def launch(
    cluster: Cluster,
    job: Manifest,
    archive: Archive | None,
    store: CodeStore | None,
    *,
    submitted: str = "",
    waits_for_name: bool = False,
) -> JobKey:
    """Create a job, keep its code, and let the job go. If the code cannot be kept or the job not be released, the job
    is deleted again.

    `submitted` is the annotation of the submission time of a job that names who submits it, too; empty: it is now. With
    `waits_for_name`, a job of this name is being deleted. Raises PartlyStarted if the job could not be deleted again.
    """
    if not submitted:
        submitted = submission_order.text(time.time_ns() // 1000, 0)
        job = submitter.with_name(job, submitter.find(cluster))
    body, policy = with_mark(job, submitted), job["spec"].get("schedulingPolicy") or {}
    if archive is not None:
        body = {**body, "spec": {**job["spec"], "schedulingPolicy": {**policy, "hold": True}}}
    key: JobKey | None = None
    try:
        key = create(cluster, body, waits_for_name=waits_for_name)
        if archive is not None and store is not None:
            _let_go(cluster, key, body, spec_to_let_go(job, store.keep(archive, key), policy.get("hold")))
    except BaseException as error:
        if key is not None or not isinstance(error, _REFUSALS):
            _take_back(cluster, body, error)
        raise
    return key


def with_mark(job: Manifest, submitted: str) -> Manifest:
    """Return a job with the mark of its submission, in place of an earlier mark."""
    metadata = job["metadata"]
    annotations = {**(metadata.get("annotations") or {}), labels.SUBMITTED: submitted}
    return {**job, "metadata": {**metadata, "annotations": annotations}}


def create(cluster: Cluster, body: Manifest, *, waits_for_name: bool = False) -> JobKey:
    """Create a job that has its mark of submission. With `waits_for_name`, wait until its name is free.

    Raises any ClusterError, AlreadyExists if the name is not free in time.
    """
    deadline = time.monotonic() + (REPLACE_SECONDS if waits_for_name else 0.0)
    while True:
        try:
            return JobKey.of(cluster.create(TORCHJOBS, body, body["metadata"]["namespace"]))
        except errors.AlreadyExists:
            own = find_own(cluster, body)  # the answer to an earlier try of the client was lost
            if own is not None:
                return own
            if time.monotonic() > deadline:
                raise
            time.sleep(REPLACE_PAUSE_SECONDS)


def spec_to_let_go(job: Manifest, source: Mounts, hold: bool | None) -> Manifest:
    """Return the patch of the spec that releases a job that was created on hold, and whose code is kept now; `hold` is
    the hold that its owner wants."""
    spec: dict[str, Any] = {"schedulingPolicy": {"hold": hold}}
    final = manifest.with_source(job, source)
    if final != job:  # another copy of the code is used
        spec["torchTaskSpecs"] = final["spec"]["torchTaskSpecs"]
    return spec


def _let_go(cluster: Cluster, key: JobKey, body: Manifest, spec: Manifest) -> None:
    """Release the job that was created from `body`, never another job that has its name by now."""
    try:
        cluster.patch(TORCHJOBS, key.name, {"metadata": {"uid": key.uid}, "spec": spec}, key.namespace)
    except (errors.Conflict, errors.Invalid, errors.NotFound) as error:
        if find_own(cluster, body) is not None:
            raise
        raise errors.Conflict(
            f"job {key.namespace}/{key.name} was deleted by somebody else before it was let go: submit it again"
        ) from error


def _take_back(cluster: Cluster, body: Manifest, cause: BaseException) -> None:
    """Delete the job that this run has created. Raises PartlyStarted if the release fails."""
    metadata = body["metadata"]
    try:
        own = find_own(cluster, body)
        if own is not None:
            delete(cluster, own)
    except (errors.ClusterError, KeyboardInterrupt) as error:
        name = f"{metadata['namespace']}/{metadata['name']}"
        raise PartlyStarted(
            f"{str(cause) or 'interrupted'}\njob {name} may exist on hold, and could not be deleted "
            f"({str(error) or 'interrupted'}): torchq job delete {name}"
        ) from error


def find_own(cluster: Cluster, body: Manifest) -> JobKey | None:
    """Return the job that was created from a manifest, by the mark of its submission; None if no job has the mark.

    Raises any ClusterError. Only a job without a name of its own is searched among the jobs of its namespace.
    """
    name, namespace = body["metadata"].get("name"), body["metadata"]["namespace"]
    found = [find(cluster, name, namespace)] if name else cluster.list(TORCHJOBS, namespace).items
    return next((JobKey.of(item) for item in found if item is not None and mark(item) == mark(body)), None)


def mark(job: Manifest) -> str:
    """Return the mark of a job's submission; empty if the job has no mark."""
    return str((job["metadata"].get("annotations") or {}).get(labels.SUBMITTED) or "")


def find(cluster: Cluster, name: str, namespace: str) -> Manifest | None:
    """Return the job of a name; None if there is no such job."""
    try:
        return cluster.get(TORCHJOBS, name, namespace)
    except errors.NotFound:
        return None


def delete(cluster: Cluster, key: JobKey) -> None:
    """Delete a job, unless it is gone or another job has its name by now."""
    with contextlib.suppress(errors.NotFound, errors.Conflict):
        cluster.delete(TORCHJOBS, key.name, key.namespace, uid=key.uid)
