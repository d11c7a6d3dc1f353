"""The submission of the TorchJobs of files: all TorchJobs or none.

One rule: nothing is created before all jobs are valid (`coordinator.runs.validation`). Before that, the coordinator and
the node of an embedded cluster report whether each job could ever run (`coordinator.runs.feasibility_check`).
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from coordinator.cli import api_client, manifest_files
from coordinator.cli.jobs.making import JobMaker
from coordinator.cli.manifest_files import BadManifest
from coordinator.cli.refusals import foreign, words
from coordinator.cli.session import Session
from coordinator.code.archive import Archive
from coordinator.runs import feasibility_check, in_place, launch, obstacles, printed_code, submitter, validation
from coordinator.runs.submission_findings import UNVETTED, CheckedJob, Vetting
from coordinator.runs.validation import Submission
from crds import labels
from crds.api_resources import TORCHJOBS
from crds.keys import JobKey
from crds.schema import definitions
from crds.torchjob import submission_order
from kube import errors
from kube.api import Cluster

UNKNOWN_FIELD = "unknown field"
"""The API server's message about a field that its schema does not have."""


def read(paths: Iterable[str], namespace: str, directory: str) -> list[Submission]:
    """Read all TorchJobs of the files; `-` is standard input. Raises BadManifest with file and document."""
    return parse((each for path in paths for each in manifest_files.documents(path)), namespace, directory)


def parse(bodies: Iterable[tuple[str, Any]], namespace: str, directory: str) -> list[Submission]:
    """Return documents as submissions; each comes with its source for messages. Raises BadManifest.

    A job of `torchq run` may come with the ConfigMaps of its code.
    """
    documents = list(bodies)
    archives = printed_code.archives(each for each in documents if printed_code.is_code(each[1]))
    jobs = (each for each in documents if not printed_code.is_code(each[1]))
    return [_with_code(_submission(*each, namespace, directory), archives) for each in jobs]


def folder() -> str:
    """Return the folder of submission. Raises BadManifest if the folder no longer exists or its name is not UTF-8."""
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
    vetting: Vetting = UNVETTED,
    *,
    dry_run: bool,
    embedded: bool = False,
    maker: JobMaker | None = None,
) -> list[JobKey]:
    """Check every document, then create all jobs; return their keys in the same order.

    If a job is refused nevertheless, or the user interrupts, the jobs before it are deleted again. `embedded` means a
    local cluster. `maker` may replace existing jobs.

    Raises `findings.NeverRuns` for jobs that could never run, and PartlySubmitted if created jobs could not be deleted.
    """
    _check_names(documents)
    user, now = submitter.find(cluster), time.time_ns() // 1000
    documents = in_sequence((replace(each, body=submitter.with_name(each.body, user)) for each in documents), now)
    maker = maker or JobMaker(cluster)
    checked = [_validate(maker, document) for document in documents]
    judged = validation.judge(documents, checked, vetting)
    judged += [_warn(cluster, document, embedded=embedded) for document in documents]
    vetting.warn(judged)
    return [] if dry_run else _make_all(maker, documents, vetting.tell)


def vetting(session: Session, *, anyway: bool, tell: Callable[[str], object]) -> Vetting:
    """Return how the jobs of an invocation are vetted: by the coordinator that it names or finds."""
    return Vetting(feasibility_check.FeasibilityCheck(partial(api_client.coordinator, session)), anyway, tell)


def _make_all(maker: JobMaker, documents: list[Submission], tell: Callable[[str], object]) -> list[JobKey]:
    created: list[JobKey] = []
    try:
        for document in documents:
            created.append(maker.make(document))
    except (errors.ClusterError, KeyboardInterrupt) as cause:
        count = maker.take_back(documents, created, cause)
        if count:
            tell(f"note: not all jobs could be submitted, so the {count} that were are deleted again")
        raise
    return created


def _warn(cluster: Cluster, document: Submission, *, embedded: bool) -> CheckedJob:
    """Return the objects for a job that the cluster does not have, and which of its commands cannot run, as far as no
    coordinator has to be asked.
    """
    found = (
        *obstacles.of_gangs(cluster, document.body),
        *in_place.find(cluster, document.body, embedded=embedded),
        *obstacles.of_commands(document.body, embedded=embedded),
        *obstacles.of_ports(document.body, embedded=embedded),
        *obstacles.of_sharing(document.body, embedded=embedded),
        *obstacles.of_model(document.body, embedded=embedded),
    )
    return CheckedJob(document.source, validation.display_name(document), found)


def in_sequence(documents: Iterable[Submission], microseconds: int) -> list[Submission]:
    """Return the documents with an annotation of the submission time, in microseconds since 1970, and the list index.

    An API server stores creation times in whole seconds only. Such an annotation in a file comes from an earlier
    submission and is replaced.
    """
    return [
        replace(document, body=launch.with_mark(document.body, submission_order.text(microseconds, place)))
        for place, document in enumerate(documents)
    ]


def _check_names(documents: list[Submission]) -> None:
    """Raise BadManifest for two jobs of one name. Dry runs accept both jobs, but only the first job can be created."""
    first: dict[str, str] = {}
    for document in documents:
        name = document.body["metadata"].get("name")
        job = f"{document.namespace}/{name}"
        if name and job in first:
            raise BadManifest(f"{document.source}: job {job} is already in {first[job]}; give it another name")
        first[job] = document.source


def _validate(maker: JobMaker, document: Submission) -> validation.ValidatedJob:
    """Validate a job. Raises any ClusterError; the error about an invalid job is in plain words."""
    try:
        return maker.validate(document)
    except errors.Invalid as error:
        raise errors.Invalid(str(error), _explain(document, error.causes)) from error


def _explain(document: Submission, causes: Iterable[errors.FieldCause]) -> tuple[errors.FieldCause, ...]:
    """Return the problems of a job in plain words, with the lines of its file."""
    schema = definitions.torchjob()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    plain = (
        replace(cause, message=words.unknown_field(cause.field, schema)) if cause.message == UNKNOWN_FIELD else cause
        for cause in words.plain_causes(causes, document.body)
    )
    return tuple(words.with_lines(plain, partial(manifest_files.line, document.source)))


def _submission(source: str, body: Any, namespace: str, directory: str) -> Submission:
    if (
        not isinstance(body, dict)
        or body.get("kind") != TORCHJOBS.kind
        or body.get("apiVersion") != TORCHJOBS.api_version
    ):
        expected = f"not a TorchJob (apiVersion: {TORCHJOBS.api_version}, kind: {TORCHJOBS.kind})"
        raise BadManifest(f"{source}: {'; '.join(filter(None, (expected, foreign.advise_on_kind(body))))}")
    metadata = manifest_files.as_map(body.get("metadata"), f"{source}: metadata")
    annotations = manifest_files.as_map(metadata.get("annotations"), f"{source}: metadata.annotations")
    body["metadata"] = {**metadata, "annotations": {labels.SUBMIT_DIRECTORY: directory, **annotations}}
    return Submission(source, str(metadata.get("namespace") or namespace), manifest_files.as_json(body, source))


def _with_code(document: Submission, archives: Mapping[str, Archive]) -> Submission:
    archive = archives.get(printed_code.code_of(document.body))
    if archive is not None and not document.body["metadata"].get("name"):
        raise BadManifest(f"{document.source}: metadata.name: a job that comes with its code needs a name")
    return replace(document, archive=archive)
