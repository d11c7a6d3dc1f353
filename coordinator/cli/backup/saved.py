"""The objects of a backup: the output of `kubectl get tenantqueues,torchjobs,modelversions -A -o json`, and ConfigMaps
with code.

One rule: pure. Of an old object only its labels, annotations and spec are used, and the status of a finished job or of
a model. Uids, owners, finalizers and managed fields belong to the old cluster.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from coordinator.cli.backup import code
from coordinator.cli.backup.code import CodeName
from coordinator.cli.manifest_files import BadManifest, as_json, as_map
from coordinator.code.archive import Archive
from crds import labels, problems, timestamps
from crds.api_resources import CONFIG_MAPS, MODEL_VERSIONS, SCALE_INS, SCALE_OUTS, TENANT_QUEUES, TORCHJOBS, Resource
from crds.keys import JobKey
from crds.metadata import LONGEST_UID, RestoredFrom
from crds.torchjob import submission_order
from crds.torchjob.conditions import FINISHED
from crds.torchjob.status import TorchJobStatus
from kube.api import Manifest
from queues import order
from queues.values import Entry

NO_UID = "unknown"
"""Stands for the uid of an object of a backup that has none."""
_REQUESTS = (
    labels.RETRY_AT,
    labels.RESTART_REQUEST,
    labels.CHECKPOINT_REQUESTED,
    labels.CHECKPOINT_COMPLETED,
    labels.CODE_PENDING,
)
"""Annotations with requests to the old job. The new job would carry them out once more."""
_SKIPPED = (SCALE_OUTS.kind, SCALE_INS.kind)
"""The kinds of torchq that are not restored: a request is about a job as it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedObject:
    """An object of a backup."""

    resource: Resource
    source: str
    """The file and the place in it, for messages."""
    namespace: str = ""
    name: str
    body: Manifest
    """The manifest to create. A model has its old status: the kind has no status subresource. A finished job is
    suspended, so that it never runs. Another job with code is on hold until its code is there."""

    def __str__(self) -> str:
        """Return the kind, namespace and name, for people."""
        return f"{self.resource.kind.lower()} {'/'.join(filter(None, (self.namespace, self.name)))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedJob(SavedObject):
    """A TorchJob of a backup."""

    uid: str
    """The uid of the old job, which the new one has as an annotation (`labels.RESTORED`)."""
    created: str
    """The creation time of the old job, as text that sorts by time."""
    tie: str
    """The order among jobs that were created in the same second (`queues.order.tie`)."""
    suspend: bool | None
    """The old `spec.suspend`; None if the spec does not have the field."""
    code: CodeName | None
    """The code in ConfigMaps that an unfinished job needs; None if it needs none."""
    hold: bool | None
    """The old `spec.schedulingPolicy.hold`; None if the spec does not have the field."""
    queue: str
    """The queue that the spec names; empty if it names none."""
    status: Manifest | None
    """The status of a finished job; None for a job that waits again."""
    deleting: bool
    """Whether the job was being deleted."""
    expires: datetime | None
    """The time from which a finished job is deleted (`ttlSecondsAfterFinished`); None: never."""


@dataclass(frozen=True, slots=True)
class Backup:
    """The objects of a backup: the queues by name, and the jobs in the order of their creation."""

    queues: tuple[SavedObject, ...]
    jobs: tuple[SavedJob, ...]
    code: Mapping[CodeName, Archive]
    """The code of unfinished jobs, as far as the backup has it."""
    requests: int
    """The number of ScaleOuts and ScaleIns, which are not restored."""
    config_maps: int
    """The number of ConfigMaps without code of jobs, which are not restored."""
    models: tuple[SavedObject, ...] = ()


def read(documents: Iterable[tuple[str, Any]]) -> Backup:
    """Return the objects of documents, each given with its source. Raise BadManifest for anything else."""
    queues: list[SavedObject] = []
    jobs: list[SavedJob] = []
    models: list[SavedObject] = []
    parts: list[Manifest] = []
    requests = config_maps = 0
    for source, body in _items(documents):
        match (body.get("apiVersion"), body.get("kind")):
            case (TENANT_QUEUES.api_version, TENANT_QUEUES.kind):
                queues.append(_object(TENANT_QUEUES, source, body))
            case (TORCHJOBS.api_version, TORCHJOBS.kind):
                jobs.append(_job(source, body))
            case (MODEL_VERSIONS.api_version, MODEL_VERSIONS.kind):
                models.append(_object(MODEL_VERSIONS, source, body))
            case (TORCHJOBS.api_version, kind) if kind in _SKIPPED:
                requests += 1
            case (CONFIG_MAPS.api_version, CONFIG_MAPS.kind):
                parts += [body] * code.is_code(body)
                config_maps += not code.is_code(body)
            case (version, kind):
                raise BadManifest(
                    f"{source}: {kind} of {version} is neither a TorchJob nor a TenantQueue of {TORCHJOBS.api_version}"
                    ", nor a ModelVersion, nor a ConfigMap with code of jobs"
                )
    _check_names((*queues, *jobs, *models))
    queues.sort(key=lambda queue: queue.name)
    jobs.sort(key=lambda job: (job.created, job.tie))
    wanted = (job.code for job in jobs if job.code is not None)
    return Backup(tuple(queues), tuple(jobs), code.archives(parts, wanted), requests, config_maps, tuple(models))


def final_status(job: SavedJob, stored: Manifest) -> Manifest:
    """Return a merge patch of the status that gives a new job the end of the old job.

    The new job has another generation and another uid.
    """
    metadata, end = stored["metadata"], job.status or {}
    generation = metadata.get("generation", 1)
    conditions = [condition | {"observedGeneration": generation} for condition in end.get("conditions") or ()]
    selector = str(end.get("selector", "")).replace(job.uid, metadata["uid"])
    present: Manifest = dict.fromkeys(stored.get("status") or {})
    changed = end | {"conditions": conditions, "observedGeneration": generation}
    return {"status": present | changed | ({"selector": selector} if selector else {})}


def _check_names(found: Iterable[SavedObject]) -> None:
    """Refuse an object that the files have twice: they are backups of different times."""
    first: dict[str, str] = {}
    for each in found:
        if str(each) in first:
            raise BadManifest(f"{each.source}: {each} is already in {first[str(each)]}: name one backup only")
        first[str(each)] = each.source


def _items(documents: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Manifest]]:
    """Yield the objects of documents and of lists in them."""
    for source, document in documents:
        is_list = isinstance(document, dict) and str(document.get("kind")).endswith("List") and "items" in document
        found = document["items"] if is_list else [document]
        if not isinstance(found, list):
            raise BadManifest(f"{source}: items: must be a list")
        for number, body in enumerate(found, start=1):
            place = f"{source}, item {number}" if is_list else source
            if not isinstance(body, dict):
                raise BadManifest(f"{place}: not a Kubernetes object")
            yield place, as_json(body, place)


def _object(resource: Resource, source: str, body: Manifest) -> SavedObject:
    """Return a queue or a model."""
    metadata = _map(body, "metadata", source)
    place = {each: _text(metadata, each, source) for each in ("namespace", "name")[not resource.namespaced :]}
    new = _manifest(body, place, _map(metadata, "annotations", source), source)
    status = {"status": _map(body, "status", source)} if resource == MODEL_VERSIONS else {}
    return SavedObject(resource=resource, source=source, body=new | status, **place)


def _job(source: str, body: Manifest) -> SavedJob:
    metadata, status = _map(body, "metadata", source), _map(body, "status", source)
    spec, annotations = _map(body, "spec", source), _map(metadata, "annotations", source)
    namespace, name = _text(metadata, "namespace", source), _text(metadata, "name", source)
    uid, end = str(metadata.get("uid") or NO_UID), _end(status, source)
    kept = {key: value for key, value in annotations.items() if key not in _REQUESTS} | {labels.RESTORED: uid}
    new = _manifest(body, {"name": name, "namespace": namespace}, kept, source)
    if end is not None:
        # A job that is created cancelled would end as cancelled, however the old job ended.
        new["spec"] = {name: value for name, value in spec.items() if name != "cancel"} | {"suspend": True}
    policy, needed = _map(spec, "schedulingPolicy", source), code.needed(spec, namespace) if end is None else None
    if needed is not None:
        new["metadata"]["annotations"] = kept | {labels.CODE_PENDING: "true"}
        new["spec"] = spec | {"schedulingPolicy": policy | {"hold": True}}
    sequence = submission_order.read(annotations.get(labels.SUBMITTED))
    return SavedJob(
        resource=TORCHJOBS,
        source=source,
        namespace=namespace,
        name=name,
        uid=uid,
        created=_text(metadata, "creationTimestamp", source),
        tie=order.tie(Entry(key=JobKey(namespace, name, uid), queue="", submitted=0.0, sequence=sequence)),
        body=new,
        suspend=spec.get("suspend"),
        code=needed,
        hold=policy.get("hold"),
        queue=str(policy.get("queue") or ""),
        status=None if end is None else _status(end, uid, metadata),
        deleting=metadata.get("deletionTimestamp") is not None,
        expires=None if end is None else _expiry(end, spec),
    )


def _manifest(body: Manifest, metadata: Manifest, annotations: Manifest, source: str) -> Manifest:
    """Return the manifest of a new object with the labels, the annotations and the spec of the old object."""
    named = _map(_map(body, "metadata", source), "labels", source)
    metadata = metadata | ({"labels": named} if named else {}) | ({"annotations": annotations} if annotations else {})
    return {key: body[key] for key in ("apiVersion", "kind")} | {"metadata": metadata, "spec": body.get("spec")}


def _end(status: Manifest, source: str) -> TorchJobStatus | None:
    """Return the status of a finished job; None for any other job."""
    if status.get("phase") not in FINISHED:
        return None
    try:
        return TorchJobStatus.model_validate(status, by_alias=True, by_name=False)
    except ValidationError as error:
        found = "; ".join(map(str, problems.unique(problems.translate(error))))
        raise BadManifest(f"{source}: status: {found}") from error


def _status(end: TorchJobStatus, uid: str, metadata: Manifest) -> Manifest:
    """Return the status of a finished job with the job that it was at first, so that the history has one job."""
    origin = end.restored_from
    if origin is None and uid != NO_UID:
        created = metadata.get("creationTimestamp")
        known_time = None if timestamps.seconds_or_none(created) is None else created
        origin = RestoredFrom.model_validate({"uid": uid[:LONGEST_UID], "created": known_time})
    known = {} if origin is None else {"restoredFrom": origin.manifest()}
    return end.model_dump(mode="json", by_alias=True, exclude_unset=True) | known


def _expiry(end: TorchJobStatus, spec: Manifest) -> datetime | None:
    seconds = spec.get("ttlSecondsAfterFinished")
    if end.completion_time is None or not isinstance(seconds, int):
        return None
    return end.completion_time + timedelta(seconds=seconds)


def _map(parent: Mapping[str, Any], name: str, source: str) -> Manifest:
    return as_map(parent.get(name), f"{source}: {name}")


def _text(metadata: Manifest, name: str, source: str) -> str:
    value = metadata.get(name)
    if not isinstance(value, str) or not value:
        raise BadManifest(f"{source}: no metadata.{name}: not an object as `kubectl get -o json` prints it")
    return value
