"""The submission of the TorchJobs of files: all of them or none.

One rule: the API server validates. What it cannot validate (a dependency cycle, a pod template) is checked here with
messages of the same form, and nothing is created before all jobs have passed. Before that, the coordinator and the node
of an embedded cluster say whether each job could ever run (`coordinator.cli.outlook`).
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from coordinator.cli import in_place, manifest_files, outlook
from coordinator.cli.manifest_files import BadManifest
from coordinator.cli.outlook import CheckedJob, CheckJobs
from coordinator.cli.refusals import foreign, words
from coordinator.errors import CoordinatorError
from coordinator.routing.feasibility import Obstacle
from crds import labels, tenantqueue
from crds.api_resources import PODS, TENANT_QUEUES, TORCHJOBS
from crds.errors import InvalidObject
from crds.keys import JobKey
from crds.schema import definitions
from crds.torchjob import claims, submission_order, torchjob
from kube import errors
from kube.api import Cluster, Manifest

UNKNOWN_FIELD = "unknown field"
"""The API server's message about a field that its schema does not have."""


class PartlySubmitted(CoordinatorError):
    """A job was refused after others had been created, and these could not be deleted. The message names them."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A document of a file, with its source and namespace."""

    source: str
    namespace: str
    body: Manifest


class ValidatedJob(NamedTuple):
    """A job that the API server accepts."""

    job: torchjob.TorchJob
    refused: list[Obstacle]
    """What the node of an embedded cluster would refuse to run."""


def read(paths: Iterable[str], namespace: str, directory: str) -> list[Submission]:
    """Read all TorchJobs of the files; `-` is standard input. Raises BadManifest with file and document."""
    return parse((each for path in paths for each in manifest_files.documents(path)), namespace, directory)


def parse(bodies: Iterable[tuple[str, Any]], namespace: str, directory: str) -> list[Submission]:
    """Return documents as submissions; each comes with its source for messages. Raises BadManifest."""
    return [_submission(source, body, namespace, directory) for source, body in bodies]


def folder() -> str:
    """Return the folder of submission. Raises BadManifest if it no longer exists or its name is not UTF-8."""
    try:
        path = os.getcwd()
        path.encode()
    except OSError as error:
        raise BadManifest(f"the current folder no longer exists ({error.strerror}): change to another one") from error
    except UnicodeEncodeError as error:
        raise BadManifest(
            "the current folder's name is not UTF-8, and jobs run in that folder: change to another one"
        ) from error
    return path


def submit(
    cluster: Cluster,
    documents: list[Submission],
    *,
    dry_run: bool,
    check_jobs: CheckJobs = lambda jobs: [[] for _ in jobs],
    anyway: bool = False,
    embedded: bool = False,
    tell: Callable[[str], object] = lambda _: None,
) -> list[JobKey]:
    """Check every document, then create all jobs; return their keys in the same order.

    If a job is refused nevertheless, the jobs before it are deleted. `check_jobs` finds the jobs that could never run.
    They are refused, or, with `anyway`, `tell` gets a warning. `embedded` means a local cluster.

    Raises `outlook.NeverRuns` for such jobs, and PartlySubmitted if created jobs could not be deleted.
    """
    _check_names(documents)
    documents = in_sequence(documents, time.time_ns() // 1000)
    checked = [_check(cluster, document) for document in documents]
    judged = _judge(documents, checked, check_jobs, tell) + _not_in_place(cluster, documents, embedded=embedded)
    for warning in outlook.collect_warnings(judged, anyway=anyway):
        tell(warning)
    created: list[JobKey] = []
    try:
        for document in () if dry_run else documents:
            created.append(_create(cluster, document))
    except errors.ClusterError as error:
        _take_back(cluster, created, error)
        raise
    return created


def _judge(
    documents: list[Submission], checked: list[ValidatedJob], check_jobs: CheckJobs, tell: Callable[[str], object]
) -> list[CheckedJob]:
    """Return the findings about each job. The node's own findings name fields, so they replace ExceedsNodes."""
    try:
        findings = check_jobs([check.job for check in checked])
    except outlook.CheckUnavailable as error:
        tell(f"note: it was not checked whether the jobs can ever run: {error}")
        findings = [[] for _ in checked]
    reported = (
        [finding for finding in of_job if not (refused and finding.code == "ExceedsNodes")]
        for (_, refused), of_job in zip(checked, findings, strict=True)
    )
    return [
        CheckedJob(document.source, _name(document), (*refused, *of_job))
        for document, (_, refused), of_job in zip(documents, checked, reported, strict=True)
    ]


def _not_in_place(cluster: Cluster, documents: list[Submission], *, embedded: bool) -> list[CheckedJob]:
    found = ((each, in_place.find_obstacle(cluster, each.body, embedded=embedded)) for each in documents)
    return [CheckedJob(each.source, _name(each), (obstacle,)) for each, obstacle in found if obstacle is not None]


def _name(document: Submission) -> str:
    """Return the name of a job, or its generateName and `*` if the API server will generate the name."""
    metadata = document.body["metadata"]
    return str(metadata.get("name") or f"{metadata.get('generateName', '')}*")


def in_sequence(documents: Iterable[Submission], microseconds: int) -> list[Submission]:
    """Return the documents with an annotation of the submission time, in microseconds since 1970, and the list index.

    An API server stores creation times in whole seconds only. Such an annotation in a file comes from an earlier
    submission and is replaced.
    """
    return [
        _with_sequence(document, submission_order.text(microseconds, place)) for place, document in enumerate(documents)
    ]


def _with_sequence(document: Submission, submitted: str) -> Submission:
    metadata = document.body["metadata"]
    annotations = {**metadata["annotations"], labels.SUBMITTED: submitted}
    return replace(document, body={**document.body, "metadata": {**metadata, "annotations": annotations}})


def _create(cluster: Cluster, document: Submission) -> JobKey:
    metadata = cluster.create(TORCHJOBS, document.body, document.namespace)["metadata"]
    return JobKey(metadata["namespace"], metadata["name"], metadata["uid"])


def _take_back(cluster: Cluster, created: list[JobKey], cause: errors.ClusterError) -> None:
    remaining = list(created)
    try:
        for key in created:
            with contextlib.suppress(errors.NotFound):
                cluster.delete(TORCHJOBS, key.name, key.namespace, uid=key.uid)
            remaining.remove(key)
    except errors.ClusterError as error:
        names = ", ".join(map(str, remaining))
        raise PartlySubmitted(f"{cause}\nsubmitted, and could not be deleted ({error}): {names}") from error


def _check_names(documents: list[Submission]) -> None:
    """Raise BadManifest for two jobs of one name. Dry runs accept both, but only the first can be created."""
    first: dict[tuple[str, str], str] = {}
    for document in documents:
        name = document.body["metadata"].get("name")
        if not name:
            continue
        job = (document.namespace, str(name))
        if job in first:
            raise BadManifest(
                f"{document.source}: job {document.namespace}/{name} is already in {first[job]}; give it another name"
            )
        first[job] = document.source


def _check(cluster: Cluster, document: Submission) -> ValidatedJob:
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
        title = f'{document.source}: TorchJob "{name}" is invalid'
        raise errors.Invalid(title, _explain(document, causes)) from error
    except errors.Invalid as error:
        raise errors.Invalid(f"{document.source}: {error}", _explain(document, error.causes)) from error
    except errors.AlreadyExists as error:
        raise errors.AlreadyExists(f"{document.source}: {error}") from error
    return ValidatedJob(job, refused)


def _explain(document: Submission, causes: Iterable[errors.FieldCause]) -> tuple[errors.FieldCause, ...]:
    """Return what is wrong with a job in plain words, with the lines of its file."""
    schema = definitions.torchjob()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    plain = (
        replace(cause, message=words.unknown_field(cause.field, schema)) if cause.message == UNKNOWN_FIELD else cause
        for cause in words.plain_causes(causes, document.body)
    )
    return tuple(words.with_lines(plain, partial(manifest_files.line, document.source)))


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

    Returns what the node of an embedded cluster would refuse of such a pod.
    """
    try:
        _try_pod(cluster, job, task_type, template, {labels.VET: "true"})
    except (errors.AlreadyExists, errors.Forbidden):
        return []  # users need no permission to create pods; the job's status reports the error later
    except errors.Invalid as refused:
        try:
            _try_pod(cluster, job, task_type, template, {})
        except (errors.AlreadyExists, errors.Forbidden):
            pass
        except errors.Invalid as error:
            prefix = f"spec.torchTaskSpecs.{task_type}.template."
            causes = tuple(
                errors.FieldCause((prefix + cause.field).rstrip("."), cause.message) for cause in error.causes
            )
            raise errors.Invalid(f"the pod template of task {task_type} is invalid: {error}", causes) from error
        return outlook.pod_findings(task_type, {cause.field: cause.message for cause in refused.causes})
    return []


def _try_pod(
    cluster: Cluster,
    job: torchjob.TorchJob,
    task_type: str,
    template: dict[str, Any],
    annotations: Mapping[str, str],
) -> None:
    """Create a pod of a task in a dry run. Raises any ClusterError."""
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
    cluster.create(PODS, body, job.key.namespace, dry_run=True)


def _submission(source: str, body: Any, namespace: str, directory: str) -> Submission:
    if (
        not isinstance(body, dict)
        or body.get("kind") != TORCHJOBS.kind
        or body.get("apiVersion") != TORCHJOBS.api_version
    ):
        raise BadManifest(f"{source}: not a TorchJob (apiVersion: {TORCHJOBS.api_version}, kind: {TORCHJOBS.kind})")
    metadata = _map(body.get("metadata"), f"{source}: metadata")
    annotations = _map(metadata.get("annotations"), f"{source}: metadata.annotations")
    body["metadata"] = {**metadata, "annotations": {labels.SUBMIT_DIRECTORY: directory, **annotations}}
    return Submission(source, str(metadata.get("namespace") or namespace), manifest_files.as_json(body, source))


def _map(value: Any, what: str) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise BadManifest(f"{what}: must be a map")
    return value or {}
