"""The runs of the containers of a TorchJob's pods, with their logs, read from the data folder.

One rule: a run is found from its start until its job is deleted, unless a bound removes it. While a pod has its own
folder, the logs of its runs are in this folder. Before the node removes that folder, it keeps the end of every log in
the job's folder.

    pods/POD-UID/job                                        which job the pod belongs to (`PodRecord`)
    job-logs/NAMESPACE/JOB-JOB-UID/POD-UID/pod              the same, from the start of the pod's first container
    job-logs/NAMESPACE/JOB-JOB-UID/POD-UID/runs/CONTAINER/RESTART
                                                            a kept run: its log (`log_writer`), the times of its lines,
                                                            and the shim's files about its begin and its end
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crds import integers, labels, timestamps
from crds.keys import JobKey
from embedded import log_files
from embedded.layout import Layout
from embedded.pod import LocalPod

RECORD_OF_POD, RECORD_OF_JOB = "job", "pod"
"""The names of the record in the folder of the pod, and in that of the job."""
RUNS = "runs"
_RUN_ID = re.compile(r"([A-Za-z0-9-]+)\.([a-z0-9-]+)\.([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class PodRecord:
    """A pod of a TorchJob, as its record on disk describes it."""

    namespace: str
    job: str
    job_uid: str
    pod: str
    pod_uid: str
    task: str
    index: int
    attempt: int
    generation: int
    """The restart generation of the job when the pod was made."""
    init: tuple[str, ...]
    """The names of its init containers."""

    @property
    def key(self) -> JobKey:
        """The job."""
        return JobKey(self.namespace, self.job, self.job_uid)

    def text(self) -> str:
        """Return the content of its file."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """One run of one container, and the folder with its log."""

    record: PodRecord
    container: str
    restart: int
    folder: Path
    kept: bool
    """Whether the pod is gone, so that only the end of its output remains."""

    @property
    def id(self) -> str:
        """The name by which clients refer to the run."""
        return f"{self.record.pod_uid}.{self.container}.{self.restart}"


def record_of(pod: LocalPod) -> PodRecord | None:
    """Return the record of a pod; None if it belongs to no TorchJob."""
    job = pod.job
    if job is None:
        return None
    return PodRecord(
        namespace=job.namespace,
        job=job.name,
        job_uid=job.uid,
        pod=pod.name,
        pod_uid=pod.uid,
        task=pod.labels.get(labels.TASK_TYPE, ""),
        index=integers.parse(pod.labels.get(labels.TASK_INDEX), 0),
        attempt=integers.parse(pod.labels.get(labels.ATTEMPT), 0),
        generation=integers.parse(pod.labels.get(labels.RESTART), 0),
        init=tuple(container["name"] for container in pod.spec.get("initContainers") or ()),
    )


def read_record(path: Path) -> PodRecord | None:
    """Return the record in a file; None if there is no such file, or none that can be read."""
    with suppress(OSError, ValueError, TypeError):
        content = json.loads(path.read_bytes())
        return PodRecord(**{**content, "init": tuple(content["init"])})
    return None


def runs(layout: Layout, job: JobKey) -> list[dict[str, Any]]:
    """Return all runs of a job as documents (`embedded.apiserver.http.log_answers`), by their beginning."""
    documents = [_document(run) for pod in _folders(layout.logs_of_job(job)) for run in _runs_of_pod(layout, pod)]
    return sorted(documents, key=lambda run: (run["startedAt"] or "~", run["pod"], run["container"], run["restart"]))


def find(layout: Layout, job: JobKey, run_id: str) -> LoggedRun | None:
    """Return the run of a job with an id; None if there is no such run."""
    match = _RUN_ID.fullmatch(run_id)
    if match is None:
        return None
    pod, container, restart = match[1], match[2], int(match[3])
    runs = _runs_of_pod(layout, layout.logs_of_job(job) / pod)
    return next((run for run in runs if (run.container, run.restart) == (container, restart)), None)


def _runs_of_pod(layout: Layout, folder: Path) -> Iterator[LoggedRun]:
    """Yield the runs of a pod, which has a folder in the folder of its job."""
    record = read_record(folder / RECORD_OF_JOB)
    if record is None:
        return
    found = list(_runs_in(layout.containers(record.pod_uid), record, kept=False))
    # The node makes this folder in one step, before it removes the pod's own folder.
    kept = (folder / RUNS).exists()
    yield from _runs_in(folder / RUNS, record, kept=True) if kept else found


def _runs_in(folder: Path, record: PodRecord, *, kept: bool) -> Iterator[LoggedRun]:
    for container in _folders(folder):
        for run in _folders(container):
            if run.name.isdecimal():
                yield LoggedRun(record, container.name, int(run.name), run, kept)


def _document(run: LoggedRun) -> dict[str, Any]:
    started, exited = _read(run.folder / "started"), _read(run.folder / "exited")
    start = end = 0
    with suppress(FileNotFoundError):
        start, end = log_files.span(run.folder)
    return {
        "id": run.id,
        "pod": run.record.pod,
        "podUid": run.record.pod_uid,
        "task": run.record.task,
        "index": run.record.index,
        "attempt": run.record.attempt,
        "generation": run.record.generation,
        "container": run.container,
        "init": run.container in run.record.init,
        "restart": run.restart,
        "startedAt": _time(started.get("startedAt")),
        "endedAt": _time(exited.get("finishedAt")),
        "exitCode": exited.get("exitCode"),
        "start": start,
        "bytes": end - start,
        "kept": run.kept,
    }


def _time(moment: float | None) -> str | None:
    return None if moment is None else timestamps.format_micro_time(moment)


def _folders(folder: Path) -> list[Path]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return []


def _read(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        content: dict[str, Any] = json.loads(path.read_bytes())
        return content
    return {}
