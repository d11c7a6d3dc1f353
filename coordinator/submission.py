"""From files to TorchJobs in the cluster: all of them or none.

One rule: the API server judges; what it cannot see (a dependency cycle, a pod template) is checked here in the same
words, and nothing is created before everything has passed.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cluster import errors
from cluster.api import Cluster, Manifest
from coordinator.errors import CoordinatorError
from crds import labels, torchjob
from crds.errors import InvalidObject
from crds.keys import JobKey
from crds.resources import PODS, TORCHJOBS


class BadManifest(CoordinatorError):
    """A file holds something that cannot be submitted."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """A document, where it came from and its namespace."""

    source: str
    namespace: str
    body: Manifest


def read(paths: Iterable[str], namespace: str, directory: str) -> list[Submitted]:
    """All TorchJobs of the files (`-`: standard input). BadManifest names file and document."""
    return [document for path in paths for document in _documents(path, namespace, directory)]


def submit(cluster: Cluster, documents: list[Submitted], *, dry_run: bool) -> list[JobKey]:
    """Check every document, then create all. The keys in the order given."""
    for document in documents:
        _check(cluster, document)
    if dry_run:
        return []
    return [_create(cluster, document) for document in documents]


def _create(cluster: Cluster, document: Submitted) -> JobKey:
    metadata = cluster.create(TORCHJOBS, document.body, document.namespace)["metadata"]
    return JobKey(metadata["namespace"], metadata["name"], metadata["uid"])


def _check(cluster: Cluster, document: Submitted) -> None:
    try:
        stored = cluster.create(TORCHJOBS, document.body, document.namespace, dry_run=True)
        job = torchjob.parse(stored)
        for task_type, task in job.spec.tasks.items():
            _check_template(cluster, job, task_type, task.template)
    except InvalidObject as error:
        causes = tuple(errors.FieldCause(each.field, each.message) for each in error.problems)
        name = document.body.get("metadata", {}).get("name", "")
        raise errors.Invalid(f'{document.source}: TorchJob "{name}" is invalid', causes) from error
    except errors.Invalid as error:
        raise errors.Invalid(f"{document.source}: {error}", error.causes) from error


def _check_template(cluster: Cluster, job: torchjob.TorchJob, task_type: str, template: dict[str, Any]) -> None:
    """Templates are opaque in the TorchJob's schema: let the API server judge one as the pod it will become."""
    name = job.pod_name(task_type, 0)
    metadata = {**(template.get("metadata") or {}), "name": name}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**template.get("spec", {}), "restartPolicy": "Never"},
    }
    try:
        cluster.create(PODS, body, job.key.namespace, dry_run=True)
    except errors.AlreadyExists:
        return
    except errors.Invalid as error:
        prefix = f"spec.torchTaskSpecs.{task_type}.template."
        causes = tuple(errors.FieldCause(prefix + cause.field, cause.message) for cause in error.causes)
        raise errors.Invalid(f"the pod template of task {task_type} is invalid: {error}", causes) from error


def _documents(path: str, namespace: str, directory: str) -> Iterator[Submitted]:
    for number, body in enumerate(_load(path), start=1):
        source = path if number == 1 else f"{path}, document {number}"
        if body is None:
            continue
        if (
            not isinstance(body, dict)
            or body.get("kind") != TORCHJOBS.kind
            or body.get("apiVersion") != TORCHJOBS.api_version
        ):
            raise BadManifest(f"{source}: not a TorchJob (apiVersion: {TORCHJOBS.api_version}, kind: {TORCHJOBS.kind})")
        metadata = body.setdefault("metadata", {}) or {}
        if not isinstance(metadata, dict):
            raise BadManifest(f"{source}: metadata: must be a map")
        annotations = {labels.SUBMIT_DIRECTORY: directory, **(metadata.get("annotations") or {})}
        body["metadata"] = {**metadata, "annotations": annotations}
        yield Submitted(source, metadata.get("namespace") or namespace, body)


def _load(path: str) -> list[Any]:
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text()
        return list(yaml.safe_load_all(text))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise BadManifest(f"{path}: {reason}") from error
    except yaml.YAMLError as error:
        raise BadManifest(
            f"{path}: not YAML: {str(error).splitlines()[0]} {getattr(error, 'problem_mark', '') or ''}".strip()
        ) from error
