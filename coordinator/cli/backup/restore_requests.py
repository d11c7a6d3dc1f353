"""The requests that restore a backup.

One rule: nothing is created before the API server has accepted every object in a dry run. A run that fails or is killed
is repeated, and continues where the first run ended. The code of a job is there, with the new job as its owner, before
the job is let go.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import orjson

from coordinator.cli import manifest_files, session
from coordinator.cli.backup import code as saved_code
from coordinator.cli.backup import saved, steps
from coordinator.cli.backup.code import CodeName
from coordinator.cli.backup.saved import Backup, SavedJob, SavedObject
from coordinator.cli.backup.steps import Step
from coordinator.code import config_maps
from coordinator.code.archive import Archive
from coordinator.code.config_map_store import ConfigMapStore
from coordinator.code.errors import CodeError, StoreFailed
from coordinator.errors import CoordinatorError
from coordinator.runs import launch
from crds import labels
from crds.api_resources import CONFIG_MAPS, MODEL_VERSIONS, TENANT_QUEUES, TORCHJOBS
from crds.keys import JobKey
from crds.torchjob import submission_order
from kube import errors
from kube.api import Cluster, Manifest

LARGEST_BACKUP = 1024 * 1024 * 1024
"""The most bytes of one file in JSON, which is read some fifty times faster than YAML."""
LARGEST_YAML = 8 * 1024 * 1024
"""The most bytes of one file in YAML, which takes half a minute to read."""
MOST_NAMED = 20
"""The most refusals of a message."""
MOST_STEPS = 20
"""The most steps for one job. A job needs at most four, and one more each time a worker writes its status meanwhile."""
Tell = Callable[[str], object]


class Refused(CoordinatorError):
    """The API server refuses objects of the backup. The message names the objects."""


class Interrupted(CoordinatorError):
    """A part of the backup was restored, and the rest was not."""


class CodeMissing(CoordinatorError):
    """Jobs were not restored, because their code is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOptions:
    """How a backup is restored."""

    now: datetime
    dry_run: bool = False
    skip_refused: bool = False
    """Whether the others are restored if the API server refuses some objects."""


@dataclass(frozen=True, slots=True)
class CodeRequests:
    """The code of a backup, and the code of the cluster for jobs whose code the backup does not have."""

    cluster: Cluster
    saved: Mapping[CodeName, Archive]

    def has(self, job: SavedJob) -> bool:
        """Return whether the code of a job can be restored, or the job needs none."""
        return job.code is None or job.code in self.saved or self._stored(job, job.code) is not None

    def try_to_keep(self, job: SavedJob) -> None:
        """Let the API server check the requests that keep the code of a job, by dry runs. Raises the errors with which
        the API server refuses.
        """
        archive = self._archive(job)
        for part in config_maps.manifests(archive, 1, job.namespace) if archive is not None else ():
            name = part["metadata"]["name"]
            try:
                self.cluster.get(CONFIG_MAPS, name, job.namespace)
                self.cluster.patch(CONFIG_MAPS, name, {}, job.namespace, dry_run=True)
            except errors.NotFound:
                self.cluster.create(CONFIG_MAPS, part, job.namespace, dry_run=True)

    def release(self, job: SavedJob, stored: Manifest) -> Manifest:
        """Keep the code of a job that was created on hold, release the job, and return the job.

        Raises Conflict if the job has changed meanwhile, StoreFailed, and any ClusterError.
        """
        archive = self._archive(job)
        if archive is None:
            raise StoreFailed(f"{job.code}: deleted meanwhile, and not in the backup; the job stays on hold")
        source = ConfigMapStore(self.cluster).keep(archive, JobKey.of(stored))
        spec = launch.spec_to_let_go(job.body, source, job.hold)
        patch = {"metadata": {"annotations": {labels.CODE_PENDING: None}}, "spec": spec}
        version = stored["metadata"]["resourceVersion"]
        return self.cluster.patch(TORCHJOBS, job.name, patch, job.namespace, resource_version=version)

    def _archive(self, job: SavedJob) -> Archive | None:
        return None if job.code is None else self.saved.get(job.code) or self._stored(job, job.code)

    def _stored(self, job: SavedJob, name: CodeName) -> Archive | None:
        """Return the code in the ConfigMaps that the pods of a job mount; None if the cluster does not have it."""
        try:
            names = saved_code.mounted(job.body["spec"])
            parts = [self.cluster.get(CONFIG_MAPS, each, job.namespace) for each in names]
        except errors.NotFound:
            return None
        return saved_code.archive(name, parts)


def read(paths: Iterable[str]) -> Backup:
    """Return the backup in the files; `-` is standard input. Raise BadManifest with file and place."""
    backup = saved.read(document for path in paths for document in _documents(path))
    if not (backup.queues or backup.jobs or backup.models):
        raise manifest_files.BadManifest(f"{', '.join(paths)}: no TorchJob, no TenantQueue and no ModelVersion")
    return backup


def restore(cluster: Cluster, backup: Backup, options: RestoreOptions, tell: Tell) -> Counter[str]:
    """Restore the objects of a backup, print the outcome of each, and return the number of objects by action.

    Raise Refused before anything is created, or with `skip_refused` at the end, if the API server refuses objects.
    Raise Interrupted if the API server refuses an object later.
    """
    code = CodeRequests(cluster, backup.code)
    todo = [*_plan(cluster, backup, code, options.now)]
    refusals = _try_all(cluster, todo, code)
    if refusals and not options.skip_refused:
        raise Refused(_format(refusals) + "\nnothing was restored; --skip-refused restores the others")
    accepted = [step for step in todo if str(step.saved) not in refusals]
    for number, step in enumerate(accepted):
        try:
            tell(f"{step.saved}: {step.said if options.dry_run else _carry_out(cluster, step, code, options.now)}")
        except (errors.ClusterError, CodeError) as error:
            raise Interrupted(
                f"{step.saved.source}: {step.saved}: {error}\n{number} of {len(accepted)} objects were handled before "
                "it: repeat the command, which goes on where it has ended"
            ) from error
    if refusals:
        raise Refused(_format(refusals) + "\nall others were restored")
    return Counter(step.action for step in accepted)


def unknown_queues(cluster: Cluster, backup: Backup) -> dict[str, int]:
    """Return the queues without a TenantQueue that unfinished jobs of a backup name, with the number of these jobs."""
    wanted = Counter(job.queue for job in backup.jobs if job.status is None and job.queue)
    for name in {queue.name for queue in backup.queues} & wanted.keys():
        del wanted[name]
    known = {item["metadata"]["name"] for item in cluster.list(TENANT_QUEUES).items} if wanted else set()
    return {name: count for name, count in sorted(wanted.items()) if name not in known}


def _documents(path: str) -> list[tuple[str, Any]]:
    text = manifest_files.text(path, LARGEST_BACKUP)
    if text.lstrip()[:1] != "{":
        if len(text) > LARGEST_YAML:
            raise manifest_files.BadManifest(
                f"{path}: YAML larger than {LARGEST_YAML >> 20} MiB: make the backup with -o json"
            )
        return [(path, document) for document in manifest_files.parse(path, text) if document is not None]
    try:
        return [(path, orjson.loads(text))]
    except orjson.JSONDecodeError as error:
        raise manifest_files.BadManifest(f"{path}: not JSON: {error}") from error


def _in_sequence(backup: Backup, now: datetime) -> Backup:
    """Return the backup with the order of its jobs as an annotation, for jobs that are created in the same second."""
    micros = int(now.timestamp() * 1_000_000)
    marks = (submission_order.text(micros, place) for place in range(len(backup.jobs)))
    marked = zip(backup.jobs, marks, strict=True)
    return replace(backup, jobs=tuple(replace(job, body=launch.with_mark(job.body, mark)) for job, mark in marked))


def _plan(cluster: Cluster, backup: Backup, code: CodeRequests, now: datetime) -> Iterator[Step]:
    """Yield the steps, by the objects of the cluster."""
    wanted = {(job.namespace, job.name): job for job in backup.jobs}
    queues = {item["metadata"]["name"]: item.get("spec") or {} for item in cluster.list(TENANT_QUEUES).items}
    found = (item for item in (cluster.list(TORCHJOBS).items if wanted else ()) if _key(item) in wanted)
    jobs = {_key(item): item for item in found}
    pending = {key: job for key, job in wanted.items() if key not in jobs or steps.awaits_code(jobs[key])}
    lacking = frozenset(key for key, job in pending.items() if not code.has(job))
    models = {_key(item) for item in (cluster.list(MODEL_VERSIONS).items if backup.models else ())}
    return steps.plan(_in_sequence(backup, now), now, queues, jobs, lacking, models)


def _key(item: Manifest) -> tuple[str, str]:
    return item["metadata"]["namespace"], item["metadata"]["name"]


def _try_all(cluster: Cluster, todo: Iterable[Step], code: CodeRequests) -> dict[str, str]:
    """Return the refusals of the API server, by object. Raise Forbidden if this account may not restore objects."""
    pending = [step for step in todo if step.action not in steps.IDLE]
    finished = (job for step in pending if isinstance(job := step.saved, SavedJob) and job.status is not None)
    first = next(finished, None)
    if first is not None:
        _check_account(cluster, first)
    refusals = dict(refusal for step in pending if step.action == "create" for refusal in _try(cluster, step.saved))
    return refusals | dict(_try_code(code, [step.saved for step in pending if str(step.saved) not in refusals]))


def _try_code(code: CodeRequests, found: Iterable[SavedObject]) -> Iterator[tuple[str, str]]:
    """Yield the refusals of the API server for the code of jobs, by job. Code that jobs share is tried once."""
    tried: dict[CodeName, str] = {}
    for job in found:
        if not isinstance(job, SavedJob) or job.code is None:
            continue
        if job.code not in tried:
            tried[job.code] = ""
            try:
                code.try_to_keep(job)
            except errors.Invalid as error:
                tried[job.code] = f"{job.code}: {session.format_invalid(error)}"
        if tried[job.code]:
            yield str(job), f"{job.source}: {tried[job.code]}"


def _check_account(cluster: Cluster, job: SavedJob) -> None:
    """Raise Forbidden if this account may not give a finished job its end: the API server checks this first."""
    for subresource in ("status", ""):
        try:
            cluster.patch(TORCHJOBS, job.name, {}, job.namespace, subresource=subresource, dry_run=True)
        except errors.NotFound:
            continue


def _try(cluster: Cluster, found: SavedObject) -> Iterator[tuple[str, str]]:
    try:
        _create(cluster, found, dry_run=True)
    except errors.Invalid as error:
        yield str(found), f"{found.source}: {session.format_invalid(error)}"
    except errors.NotFound as error:  # the namespace
        yield str(found), f"{found.source}: {error}: create it first"
    except errors.AlreadyExists:
        return  # created since the list; the next step finds out by whom


def _create(cluster: Cluster, found: SavedObject, *, dry_run: bool = False) -> Manifest:
    return cluster.create(found.resource, found.body, found.namespace, dry_run=dry_run)


def _carry_out(cluster: Cluster, step: Step, code: CodeRequests, now: datetime) -> str:
    """Carry out one step and return the outcome for the object."""
    if isinstance(step.saved, SavedJob):
        return _restore_job(cluster, step.saved, step, code, now)
    if step.action != "create":
        return step.said
    try:
        _create(cluster, step.saved)
    except errors.AlreadyExists:
        return steps.KEPT
    return step.said


def _restore_job(cluster: Cluster, job: SavedJob, step: Step, code: CodeRequests, now: datetime) -> str:
    """Take the steps of one job, each step judged from the job's newest state, and return the outcome for the job."""
    said, stored = step.said, None
    for _ in range(MOST_STEPS):
        if step.action in steps.IDLE:
            return said if step.said == steps.EARLIER else step.said
        try:
            stored = _take(cluster, step, job, stored, code)
        except (errors.AlreadyExists, errors.Conflict):
            stored = cluster.get(TORCHJOBS, job.name, job.namespace)
        except errors.NotFound:
            if step.action == "create":
                raise
            return f"{said}, and deleted since"
        except errors.Invalid:
            if step.action != "resume":
                raise
            return f"{said}; its spec.suspend stays true: the CustomResourceDefinitions are older than this command"
        step = steps.judge_job(job, stored, now)
    raise errors.Conflict(f"torchjob {job.namespace}/{job.name} changes all the time")


def _take(cluster: Cluster, step: Step, job: SavedJob, stored: Manifest | None, code: CodeRequests) -> Manifest:
    """Take one step of a job and return the job as it is then stored."""
    if step.action == "create":
        return _create(cluster, job)
    if stored is None:
        stored = cluster.get(TORCHJOBS, job.name, job.namespace)
    if step.action == "release":
        return code.release(job, stored)
    if step.action == "resume":
        return cluster.patch(TORCHJOBS, job.name, {"spec": {"suspend": job.suspend}}, job.namespace)
    version, status = stored["metadata"]["resourceVersion"], saved.final_status(job, stored)
    return cluster.patch(TORCHJOBS, job.name, status, job.namespace, subresource="status", resource_version=version)


def _format(refusals: Mapping[str, str]) -> str:
    """Return the refusals for people, with equal refusals of many objects only once."""
    shown = [*refusals.values()][:MOST_NAMED]
    more = len(refusals) - len(shown)
    head = f"the API server refuses {len(refusals)} objects of the backup:"
    return "\n".join([head, *shown, *([f"and {more} more"] if more else ())])
