"""From a request to a job: `prepare` packs the folder and describes the job, `start` submits it.

One rule: after `prepare`, nothing depends on the folder any more.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from coordinator import settings, terminal
from coordinator.code import largest, pack, unpack
from coordinator.code.archive import Archive
from coordinator.code.config_map_store import ConfigMapStore
from coordinator.code.folder_store import FolderStore
from coordinator.code.stores import CodeStore
from coordinator.runs import commands, job_names, launch, manifest, model_versions, obstacles, validation
from coordinator.runs.errors import InvalidRun
from coordinator.runs.manifest import RunCode
from coordinator.runs.model_versions import NoSuchModel
from coordinator.runs.request import IfExists, RunRequest
from coordinator.runs.submission_findings import UNVETTED, CheckedJob, Vetting
from coordinator.runs.validation import Submission
from crds.keys import JobKey
from kube import errors
from kube.api import Cluster, Manifest

SOURCE = "run"
"""How messages name what is submitted."""
NO_IMAGE = "python"
"""The image that is recorded on one machine, where images are not run."""
MOST_SHOWN = 6
"""The most entries that a line about the code names."""
_RANDOM = random.SystemRandom()


class RunNameTaken(errors.AlreadyExists):
    """Another job has the name of the run. The advice depends on who asked for the run, and the caller adds it."""


@dataclass(frozen=True, slots=True)
class CodeSummary:
    """A description of the packed code, for people."""

    files: int
    packed_bytes: int
    digest: str
    left_out: list[str]
    secrets: list[str] = field(default_factory=list)
    """The files that look like a secret and are packed."""

    def describe(self) -> str:
        """Return the line about the code: how many files, how large, the digest, and what was left out."""
        files = f"{self.files} file" if self.files == 1 else f"{self.files} files"
        size = largest.size_text(self.packed_bytes)
        shown = f" (left out: {_listed(self.left_out)})" if self.left_out else ""
        return f"code: {files}, {size} packed, {self.digest[:8]}{shown}"

    def warning(self) -> str:
        """Return the line about secrets that are packed; empty if there are none."""
        shown = terminal.one_line(_listed(self.secrets))
        return f"packed with the job's code, although it looks like a secret: {shown}" if shown else ""


def _listed(entries: list[str]) -> str:
    rest = len(entries) - MOST_SHOWN
    return "; ".join([*entries[:MOST_SHOWN], *([f"{rest} more"] if rest > 0 else [])])


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run that is ready to be submitted. The prepared run does not depend on the folder any more."""

    manifest: Manifest
    """The TorchJob."""
    code: CodeSummary | None = None
    """None for a run in the folder itself."""
    objects: tuple[Manifest, ...] = ()
    """The other objects, for a dry run; `start` makes them with the job as their owner."""
    if_exists: IfExists = "fail"
    archive: Archive | None = None
    store: CodeStore | None = None


def prepare(
    cluster: Cluster,
    request: RunRequest,
    *,
    embedded: bool,
    python_folder: str,
    code_store: str,
    tell: Callable[[str], object] = lambda _: None,
) -> PreparedRun:
    """Pack the folder of a run and return its job. Nothing is written.

    `python_folder` is the folder of the caller's Python, which is used on an embedded cluster only. `code_store` is the
    setting of that name. `tell` gets a line for each model that the job reads, and lines if packing takes long.

    Raises InvalidRun, and CodeError for a folder that cannot be packed.
    """
    _check(request, embedded=embedded)
    request = _with_image(request, embedded=embedded)
    models = _models(cluster, request, embedded=embedded, tell=tell)
    first = next(iter(request.roles.values()))
    name = request.name or job_names.generated(first.command, request.folder, _RANDOM.choice)
    python = python_folder if embedded else ""
    if request.in_place:
        return PreparedRun(manifest.build(request, name, None, python, models), if_exists=request.if_exists)
    store = open_store(cluster, code_store)
    packed = pack.pack(Path(request.folder), request.exclude, limit=store.limit, tell=tell)
    archive = packed.archive
    code = RunCode(archive.digest, store.source(archive), Path(unpack.__file__).read_text(encoding="utf-8"))
    return PreparedRun(
        manifest.build(request, name, code, python, models),
        CodeSummary(
            packed.files, len(archive.content), archive.digest, list(map(str, packed.left_out)), list(packed.secrets)
        ),
        tuple(store.objects(archive, request.namespace)),
        request.if_exists,
        archive,
        store,
    )


def open_store(cluster: Cluster, code_store: str) -> CodeStore:
    """Return the store that the setting `code_store` names."""
    folder = settings.parse_code_store(code_store)
    return ConfigMapStore(cluster) if folder is None else FolderStore(folder)


def _check(request: RunRequest, *, embedded: bool) -> None:
    for role in request.roles.values():
        surroundings = commands.read(role.command, Path(request.folder), here=embedded)
        if problem := commands.problem(role.command, surroundings):
            raise InvalidRun(f"command: {problem}")
    if request.in_place and not embedded:
        raise InvalidRun("in_place: only a local cluster runs in the folder itself: other nodes do not have it")
    if request.model and not (request.outputs or embedded):
        raise InvalidRun(
            "model: needs a place that outlives the pods: give outputs, the name of a PersistentVolumeClaim"
        )


def _models(
    cluster: Cluster, request: RunRequest, *, embedded: bool, tell: Callable[[str], object]
) -> Sequence[Manifest]:
    """Return the versions of models that the job reads, which are fixed now."""
    if not request.with_models:
        return ()
    versions = model_versions.read(cluster, request.namespace)
    try:
        found = model_versions.inputs(versions, request.with_models, embedded=embedded)
    except NoSuchModel as error:
        raise InvalidRun(f"with_models: {error}") from error
    for each in found:
        tell(f"reads model {each['modelName']}@{each['version']}")
    return found


def _with_image(request: RunRequest, *, embedded: bool) -> RunRequest:
    """Return the request with an image for every role. Raises InvalidRun for a cluster that runs images."""
    if embedded:
        return request if request.image else replace(request, image=NO_IMAGE)
    lacking = [name for name, role in request.roles.items() if not (role.image or request.image)]
    if lacking:
        raise InvalidRun(
            "image: is missing, and this cluster runs images: give --image NAME, with the Python and the packages that "
            'the command needs, or put image = "NAME" under [tool.torchq] in pyproject.toml'
        )
    return request


def dry_run(cluster: Cluster, prepared: PreparedRun, vetting: Vetting = UNVETTED) -> None:
    """Validate a run as `start` does, and create nothing. Raises the errors of `start`."""
    body = prepared.manifest
    if prepared.if_exists == "replace":  # the name is free later
        stand_in = job_names.stand_in(body["metadata"]["name"], _RANDOM.choice)
        body = {**body, "metadata": {**body["metadata"], "name": stand_in}}
    document = Submission(SOURCE, body["metadata"]["namespace"], body)
    try:
        checked = [validation.validate(cluster, document)]
    except errors.AlreadyExists as error:
        raise _taken(f"{document.namespace}/{document.body['metadata']['name']}") from error
    judged = validation.judge([document], checked, vetting)
    name = validation.display_name(document)
    judged.append(CheckedJob(SOURCE, name, [*obstacles.of_commands(body, embedded=False)]))
    vetting.warn(judged)


def _taken(name: str) -> RunNameTaken:
    return RunNameTaken(f"job {name} already exists")


def start(cluster: Cluster, prepared: PreparedRun, vetting: Vetting = UNVETTED) -> JobKey:
    """Submit a run, and return the key of its job; with `attach`, the key of the existing job of that name.

    Raises `findings.NeverRuns` for a job that can never run, unless `anyway`; any ClusterError; PartlyStarted.
    """
    metadata = prepared.manifest["metadata"]
    present = launch.find(cluster, metadata["name"], metadata["namespace"]) if prepared.if_exists != "fail" else None
    if present is not None and prepared.if_exists == "attach":
        return JobKey.of(present)
    try:
        dry_run(cluster, prepared, vetting)
        if present is not None:
            launch.delete(cluster, JobKey.of(present))
        return launch.launch(
            cluster, prepared.manifest, prepared.archive, prepared.store, waits_for_name=present is not None
        )
    except errors.AlreadyExists as error:
        return _attach_or_refuse(cluster, prepared, error)


def _attach_or_refuse(cluster: Cluster, prepared: PreparedRun, cause: errors.AlreadyExists) -> JobKey:
    """Return the job that another client has submitted in the meantime, with `attach`; else raise AlreadyExists."""
    metadata = prepared.manifest["metadata"]
    name = f"{metadata['namespace']}/{metadata['name']}"
    if prepared.if_exists == "attach":
        other = launch.find(cluster, metadata["name"], metadata["namespace"])
        if other is not None:
            return JobKey.of(other)
    if prepared.if_exists == "replace":
        raise errors.AlreadyExists(
            f"job {name} exists still or again: a finalizer keeps the old job, or another client has submitted one "
            "meanwhile: run again"
        ) from cause
    raise _taken(name) from cause
