"""The logs of all runs of a TorchJob's containers over HTTP, also of pods that no longer exist.

One rule: read-only, and a log is there as long as its TorchJob exists and `KEPT_SECONDS` longer, so that followers
read its end, unless a bound removed it. A client that reads the list after a pod is gone finds the runs of that pod in
the list.

Kubernetes has no such path: there the server answers 404. `crds.api_resources.job_logs_path` builds both paths.

    GET /torchq/logs/NAMESPACE/JOB-UID       200 {"runs": [RUN, ...]}, in the order in which the runs began
    GET /torchq/logs/NAMESPACE/JOB-UID/files 200 {"folder": FOLDER, "files": [{"path": PATH, "bytes": N}, ...]}: what
                                             rank 0 has written beside its code (`embedded.code_copies`), or {}
    GET /torchq/logs/NAMESPACE/JOB-UID/ID    200 text/plain: the output of one run

The first two answer 404 (a Status, reason NotFound) if the TorchJob does not exist any more, and the last also if it
has no such run. A RUN has

    id          the last part of its path: POD-UID.CONTAINER.RESTART
    pod, podUid, task, index
                the pod's name, uid, task type in lower case, and task index (a number)
    attempt     the admission attempt of the pod (label `attempt`), a number
    generation  the job's restart generation when the pod was made (label `restart`), a number
    container, init, restart
                the container's name, whether it is an init container, and the number of its run, from 0
    startedAt   when the run began, as Kubernetes writes times with microseconds; null if it did not begin
    endedAt     when it ended; null while it runs, and if its end is not known
    exitCode    the exit code; null if `endedAt` is
    start       the position of the first byte that is kept, in everything that the run has printed
    bytes       the number of bytes that are kept, from `start` on
    kept        true if the pod is gone, so that only the end of its output remains (`embedded.job_logs`); a pod can be
                gone a moment before that

The last takes the parameters of the subresource `log` of a pod: follow, tailLines, sinceSeconds, sinceTime,
limitBytes, timestamps and positions. With `follow` the answer ends with the run. The answer has no text if nothing of
the output is left. A line marks output that was removed, as in that subresource.
"""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import orjson
from aiohttp import web

from crds.api_resources import TORCHJOBS, job_logs_path
from crds.keys import JobKey
from embedded import code_copies, job_logs, log_files
from embedded.apiserver import status_errors
from embedded.apiserver.http import pod_logs
from embedded.apiserver.kinds.catalog import storage
from embedded.apiserver.storage.journal import Change
from embedded.apiserver.storage.object_store import Store
from embedded.job_logs import LoggedRun
from embedded.layout import Layout

KEPT_SECONDS = 60.0
"""How long the logs of a job stay after it was deleted."""
_ROOT = job_logs_path("", "")


class JobLogs:
    """The logs of TorchJobs in one data folder. Only one event loop may call its methods."""

    def __init__(self, layout: Layout, store: Store) -> None:
        self._layout = layout
        self._store = store
        self._deleted: dict[str, JobKey] = {}
        """The jobs that were deleted lately, by uid."""
        self._removals: set[asyncio.Future[None]] = set()
        store.subscribe(self._follow_deletions)

    def serves(self, path: str) -> bool:
        """Return whether a path is a path of this module."""
        return path.startswith(f"{_ROOT}/")

    async def answer(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        """Return the list of runs, or send the log of one run. Raise StatusError if there is no such job or run."""
        if request.method != "GET":
            raise status_errors.method_not_allowed()
        match path.removeprefix(f"{_ROOT}/").split("/"):
            case [namespace, uid]:
                runs = await asyncio.to_thread(job_logs.runs, self._layout, self._job(namespace, uid))
                return web.Response(body=orjson.dumps({"runs": runs}), content_type="application/json")
            case [namespace, uid, "files"]:
                copy = await asyncio.to_thread(code_copies.find, self._layout, self._job(namespace, uid))
                found = {"folder": str(copy.folder), "files": copy.files} if copy is not None else {}
                return web.Response(body=orjson.dumps(found), content_type="application/json")
            case [namespace, uid, run_id]:
                return await self._serve_log(request, self._job(namespace, uid), run_id)
            case _:
                raise status_errors.no_such_path()

    async def _serve_log(self, request: web.BaseRequest, job: JobKey, run_id: str) -> web.StreamResponse:
        run = self._find(job, run_id)
        if not log_files.files(run.folder):
            run = self._find(job, run_id)  # the node may have removed the folder of the pod since, with its logs kept
        if not log_files.files(run.folder):  # the output had to make room for that of a later run, or there is none
            return web.Response(text="")
        options = pod_logs.options_of(run.folder, request.query)
        if run.kept:  # nobody writes to it any more
            options = replace(options, follow=False, bound="the bounds of the logs of pods that are gone")
        return await pod_logs.serve(request, options)

    def _find(self, job: JobKey, run_id: str) -> LoggedRun:
        run = job_logs.find(self._layout, job, run_id)
        if run is None:
            raise status_errors.StatusError(404, "NotFound", f"TorchJob {job.namespace}/{job.name} has no run {run_id}")
        return run

    def _job(self, namespace: str, uid: str) -> JobKey:
        if (deleted := self._deleted.get(uid)) is not None and deleted.namespace == namespace:
            return deleted
        found = self._store.key_of(uid)
        if found is None or (found.resource, found.namespace) != (storage(TORCHJOBS), namespace):
            raise status_errors.not_found(TORCHJOBS, uid)
        return JobKey(namespace, found.name, uid)

    def _follow_deletions(self, resource: str, change: Change) -> None:
        """Remove the logs of a job that was deleted, after a while."""
        if resource == storage(TORCHJOBS) and change.kind == "DELETED":
            job = JobKey(change.object.namespace, change.object.name, change.object.uid)
            self._deleted[job.uid] = job
            asyncio.get_running_loop().call_later(KEPT_SECONDS, self._forget, job)

    def _forget(self, job: JobKey) -> None:
        del self._deleted[job.uid]
        self._remove(self._layout.logs_of_job(job))

    def _remove(self, folder: Path) -> None:
        removal = asyncio.get_running_loop().run_in_executor(None, shutil.rmtree, folder, True)
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)

    def remove_leftovers(self) -> None:
        """Remove the logs of jobs that do not exist: they were deleted while no API server ran, or their pods started
        last."""
        jobs = {
            self._layout.logs_of_job(JobKey(job.namespace, job.name, job.uid))
            for job in self._store.items(storage(TORCHJOBS))
        }
        for folder in self._layout.job_logs.glob("*/*"):
            if folder not in jobs:
                self._remove(folder)

    async def finish(self) -> None:
        """Wait for the removals that have begun."""
        await asyncio.gather(*self._removals, return_exceptions=True)
