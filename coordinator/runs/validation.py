"""The validation of TorchJobs before they are created: the refusals of the API server, and the problems that the API
server cannot know.

One rule: nothing is created. The API server validates in dry runs. A part that the API server cannot validate (a
dependency cycle, a pod template) is checked here with messages of the same form.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from coordinator.code.archive import Archive
from coordinator.routing.feasibility import Obstacle
from coordinator.runs import submission_findings
from coordinator.runs.submission_findings import CheckedJob, Vetting
from crds import labels, tenantqueue
from crds.api_resources import PODS, TENANT_QUEUES, TORCHJOBS
from crds.errors import InvalidObject
from crds.torchjob import claims, torchjob
from kube import errors
from kube.api import Cluster, Manifest


@dataclass(frozen=True, slots=True)
class Submission:
    """A document of a file, with its source and namespace."""

    source: str
    namespace: str
    body: Manifest
    archive: Archive | None = None
    """The code of a run that a dry run has printed."""


class ValidatedJob(NamedTuple):
    """A job that the API server accepts."""

    job: torchjob.TorchJob
    refused: list[Obstacle]
    """What the node of an embedded cluster would refuse to run."""


def validate(cluster: Cluster, document: Submission) -> ValidatedJob:
    """Validate one job by dry runs. Raises any ClusterError, with the source of the job."""
    refused: list[Obstacle] = []
    try:
        stored = cluster.create(TORCHJOBS, document.body, document.namespace, dry_run=True)
        job = torchjob.parse_submitted(stored)
        _check_claims(cluster, job)
        for task_type, task in job.spec.tasks.items():
            refused += _check_template(cluster, job, task_type, task.template)
    except InvalidObject as error:
        causes = tuple(errors.FieldCause(problem.field, problem.message) for problem in error.problems)
        name = document.body["metadata"].get("name", "")
        raise errors.Invalid(f'{document.source}: TorchJob "{name}" is invalid', causes) from error
    except errors.Invalid as error:
        raise errors.Invalid(f"{document.source}: {error}", error.causes) from error
    except errors.AlreadyExists as error:
        raise errors.AlreadyExists(f"{document.source}: {error}") from error
    return ValidatedJob(job, refused)


def _check_claims(cluster: Cluster, job: torchjob.TorchJob) -> None:
    """Refuse a job with resource claims if the quota of its queue names a device, since that queue never admits it.

    If the queue cannot be read, the status of the job reports this later.
    """
    if not job.spec.claims:
        return
    with contextlib.suppress(errors.NotFound, errors.Forbidden, InvalidObject):
        queue = tenantqueue.read(cluster.get(TENANT_QUEUES, job.queue))
        if refusal := claims.refusal(job.queue, queue.spec.quota_amounts):
            raise errors.Invalid(
                f'TorchJob "{job.metadata.name}" is invalid', (errors.FieldCause(job.spec.claims, refusal),)
            )


def _check_template(
    cluster: Cluster, job: torchjob.TorchJob, task_type: str, template: dict[str, Any]
) -> list[Obstacle]:
    """Validate a pod template by a dry run of its pod, since the TorchJob's schema does not describe templates.

    Returns the refusals of the node of an embedded cluster for such a pod.
    """
    refused = _refusal(cluster, job, task_type, template, {labels.VET: "true"})
    if refused is None:
        return []
    invalid = _refusal(cluster, job, task_type, template, {})
    if invalid is not None:
        prefix = f"spec.torchTaskSpecs.{task_type}.template."
        causes = tuple(errors.FieldCause((prefix + each.field).rstrip("."), each.message) for each in invalid.causes)
        raise errors.Invalid(f"the pod template of task {task_type} is invalid: {invalid}", causes) from invalid
    return submission_findings.pod_findings(task_type, {cause.field: cause.message for cause in refused.causes})


def _refusal(
    cluster: Cluster,
    job: torchjob.TorchJob,
    task_type: str,
    template: dict[str, Any],
    annotations: Mapping[str, str],
) -> errors.Invalid | None:
    """Create a pod of a task in a dry run, and return the refusal; None for a valid pod. Raises any other ClusterError.

    Users need no permission to create pods; the job's status reports the error later.
    """
    metadata = template.get("metadata") or {}
    pod_annotations = metadata.get("annotations") or {}
    if isinstance(pod_annotations, dict):  # otherwise the API server reports the error
        metadata = {**metadata, "annotations": {**pod_annotations, **annotations}}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "name": job.pod_name(task_type, 0)},
        "spec": {**template.get("spec", {}), "restartPolicy": "Never"},
    }
    try:
        cluster.create(PODS, body, job.key.namespace, dry_run=True)
    except errors.Invalid as error:
        return error
    except (errors.AlreadyExists, errors.Forbidden):
        pass
    return None


def judge(documents: Sequence[Submission], checked: Sequence[ValidatedJob], vetting: Vetting) -> list[CheckedJob]:
    """Return the findings about each job. The node's own findings name fields, so they replace ExceedsNodes."""
    judged = []
    answers = vetting.ask([check.job for check in checked])
    for document, (job, refused), of_job in zip(documents, checked, answers, strict=True):
        reported = [finding for finding in of_job if not (refused and finding.code == "ExceedsNodes")]
        found = (*refused, *reported, *submission_findings.overridden(job))
        judged.append(CheckedJob(document.source, display_name(document), found))
    return judged


def display_name(document: Submission) -> str:
    """Return the name of a job, or its generateName and `*` if the API server will generate the name."""
    metadata = document.body["metadata"]
    return str(metadata.get("name") or f"{metadata.get('generateName', '')}*")
