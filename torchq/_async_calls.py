"""The client of asyncio, and its jobs.

One rule: written by `python -m deploy.client` from `torchq/_calls.py`; change that table instead.
"""

# mypy: disable-error-code="no-any-return"
from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from torchq._async import AsyncCalls, AsyncJob
from torchq._parameters import given
from torchq._values import Ending, LogLine, Role


class Job(AsyncJob):
    """A job. Nothing ends it but its own end, `cancel` and `delete`: not the end of this program."""

    @property
    async def phase(self) -> str:
        """The phase of the job, Pending before it has one.

        Raises NotFound if there is no such job, or if the handle belongs to an earlier job of that name.
        """
        return await self._call("job.phase", {})

    async def why(self) -> dict[str, Any]:
        """Return why the job waits, or what it does instead: `code`, `message` and numbers."""
        return await self._call("job.why", {})

    async def position(self) -> int | None:
        """Return the job's place in its queue, from 1; None if it does not wait in a queue."""
        return await self._call("job.position", {})

    async def pods(self) -> list[dict[str, Any]]:
        """Return the pods of the job: name, task, index, phase, ready, node, restarts."""
        return await self._call("job.pods", {})

    async def details(self) -> dict[str, Any]:
        """Return the whole TorchJob with all that `torchq job show` knows."""
        return await self._call("job.details", {})

    def logs(
        self,
        *,
        follow: bool = False,
        task: str | None = None,
        index: int | None = None,
        container: str | None = None,
        tail: int | None = None,
        previous: bool = False,
        run: int | None = None,
    ) -> AsyncIterator[LogLine]:
        """Yield the lines that the pods of the job print.

        Every line comes once, with its pod; a line without a pod is a note of torchq. The stream ends when the caller
        leaves the loop. Raises Refused, which says why, for a job that has no output. `follow` goes on to the end of
        the job, through restarts. `task` is a task type; without one, the lines of all pods come. `tail` is the number
        of lines of each pod to begin with. `previous` gives the run before the last restart. `run` is the run to give,
        from 1 (default: all).
        """
        return self._stream("job.logs", given(locals()))

    def reports(self, *, follow: bool = True) -> AsyncIterator[dict[str, Any]]:
        """Yield what training code reports with `torchq.report`, with `pod` and `time`.

        It ends with the job. Without `follow`, it ends after the reports so far. Reports by the progress protocol of
        Kubeflow Trainer come, too; without `follow`, the last one of each pod.
        """
        return self._stream("job.reports", given(locals()))

    async def wait(self, *, timeout: float | None = None, goal: str = "Finished") -> Ending:
        """Wait until the job has ended, and return how: Succeeded, Failed, Cancelled or Deleted.

        Raises TimedOut; the job goes on. `timeout` is in seconds (default: as long as needed). `goal` is Finished or
        Running.
        """
        return await self._call("job.wait", given(locals()))

    async def result(self, *, timeout: float | None = None) -> Any:
        """Wait until the job has succeeded, and return its result; None if rank 0 gave none.

        It is the map of what was given to `torchq.result`, or the JSON value that a function has returned. Raises
        Failed, which says why, if the job did not succeed, NotFound if the result was too large to keep or cannot be
        read from here, and TimedOut; the job goes on. `timeout` is in seconds (default: as long as needed).
        """
        return await self._call("job.result", given(locals()))

    async def outputs(self) -> dict[str, Any]:
        """Return where the files are that the job writes to `torchq.output()`."""
        return await self._call("job.outputs", {})

    async def download(self, pattern: str = "**", *, to: str | os.PathLike[str] = ".") -> list[str]:
        """Copy the output files that match a pattern into a folder, and return their names.

        Also those beside the code of rank 0. Raises Refused, with their place, if they cannot be read from here.
        """
        return await self._call("job.download", given(locals()))

    async def suspend(self, *, reason: str = "") -> None:
        """Delete the job's pods and free its charge. The job keeps its age.

        `reason` is recorded in the event of the change.
        """
        await self._call("job.suspend", given(locals()))

    async def resume(self, *, reason: str = "") -> None:
        """Resume a suspended, held or delayed job.

        `reason` is recorded in the event of the change.
        """
        await self._call("job.resume", given(locals()))

    async def restart(
        self,
        *,
        task: str | None = None,
        index: int | None = None,
        how: str | None = None,
        reason: str = "",
    ) -> None:
        """Restart the job, a task or one pod. The job keeps its room and its code.

        `how` is InPlace or Recreate. `reason` is recorded in the event of the change.
        """
        await self._call("job.restart", given(locals()))

    async def cancel(self, *, reason: str = "") -> None:
        """End the job for good. Its status and its logs stay for a while.

        `reason` is recorded in the event of the change.
        """
        await self._call("job.cancel", given(locals()))

    async def delete(self, *, reason: str = "") -> None:
        """Delete the job, its pods and its status.

        `reason` is recorded in the event of the change.
        """
        await self._call("job.delete", given(locals()))

    async def hold(self, *, reason: str = "") -> None:
        """Keep a waiting job out of the order until it is resumed.

        `reason` is recorded in the event of the change.
        """
        await self._call("job.hold", given(locals()))

    async def bump(self, *, reason: str = "") -> None:
        """Move a waiting job to the head of its queue.

        `reason` is recorded in the event of the change.
        """
        await self._call("job.bump", given(locals()))

    async def move(self, queue: str, *, anyway: bool = False, reason: str = "") -> None:
        """Move a waiting job to another queue.

        Raises Refused if it could never run there, unless `anyway`. `reason` is recorded in the event of the change.
        """
        await self._call("job.move", given(locals()))

    async def scale(self, workers: int, *, anyway: bool = False) -> None:
        """Change the number of workers of an elastic job.

        Raises Refused if it could never run with that number, unless `anyway`.
        """
        await self._call("job.scale", given(locals()))


class Client(AsyncCalls):
    """The calls to a cluster."""

    def _make_job(self, handle: str) -> Job:
        return Job(handle, self)

    async def run(
        self,
        command: Sequence[str] | None = None,
        *,
        roles: Mapping[str, Role] | None = None,
        name: str | None = None,
        queue: str | None = None,
        nodes: int | tuple[int, int] | None = None,
        gpus: int | None = None,
        cpus: float | str | None = None,
        memory: str | None = None,
        image: str | None = None,
        env: Mapping[str, str] | None = None,
        secret_env: Mapping[str, str] | None = None,
        folder: str | os.PathLike[str] = ".",
        autoscale: bool | None = None,
        checkpoint_seconds: int | None = None,
        exclude: Iterable[str] | None = None,
        namespace: str | None = None,
        priority: int | None = None,
        if_exists: str | None = None,
        in_place: bool | None = None,
        outputs: str | None = None,
        model: str | None = None,
        with_models: Iterable[str] | None = None,
        labels: Mapping[str, str] | None = None,
        anyway: bool | None = None,
        success: str | None = None,
        retries: int | None = None,
        time: str | None = None,
        grace: str | None = None,
        ttl_seconds: int | None = None,
    ) -> Job:
        """Run a command on the cluster, in a copy of this folder as it is now, and return the job's handle.

        The job does not depend on this program: it goes on when this program ends. What is not given comes from
        [tool.torchq] in the folder's pyproject.toml. Raises Invalid for a wrong value, AlreadyExists for a name that is
        taken, and Refused for a job that could never run. `command` is a list of words. `roles` takes the place of a
        command in a job with several. `nodes` is the number of pods; (1, 3) makes an elastic job of 1 to 3. `gpus` of
        each pod. `cpus` of each pod, as in 4 or "100m". `memory` of each pod, as in 16Gi. `env` are variables; a secret
        is refused here. `secret_env` has values of Secrets: {"WANDB_API_KEY": "SECRET/KEY"}. `autoscale` asks for the
        least number of nodes; more come while room is idle. `checkpoint_seconds` is the time to save before workers go
        or restart. `exclude` are patterns of files to leave out. `if_exists` is fail, replace or attach. `in_place`
        runs in the folder itself, on one machine only. `outputs` is the claim for `torchq.output()`, on Kubernetes.
        `model` names what the job trains, and with_models what it reads: digits@3f2a1. `anyway` submits a job that can
        never run, too. `success` is all (every pod has ended with 0) or master (rank 0 has). `retries` restarts the
        pods this often after any failure. `time` is the longest run, as in 2h or 1h30m. `grace` is the time to save
        after SIGTERM, as in 90s. `ttl_seconds` is how long the job stays after its end.
        """
        return await self._call("run", given(locals()))

    async def dry_run(
        self,
        command: Sequence[str] | None = None,
        *,
        roles: Mapping[str, Role] | None = None,
        name: str | None = None,
        queue: str | None = None,
        nodes: int | tuple[int, int] | None = None,
        gpus: int | None = None,
        cpus: float | str | None = None,
        memory: str | None = None,
        image: str | None = None,
        env: Mapping[str, str] | None = None,
        secret_env: Mapping[str, str] | None = None,
        folder: str | os.PathLike[str] = ".",
        autoscale: bool | None = None,
        checkpoint_seconds: int | None = None,
        exclude: Iterable[str] | None = None,
        namespace: str | None = None,
        priority: int | None = None,
        if_exists: str | None = None,
        in_place: bool | None = None,
        outputs: str | None = None,
        model: str | None = None,
        with_models: Iterable[str] | None = None,
        labels: Mapping[str, str] | None = None,
        anyway: bool | None = None,
        success: str | None = None,
        retries: int | None = None,
        time: str | None = None,
        grace: str | None = None,
        ttl_seconds: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return what `run` would submit: the ConfigMaps with the code, then the TorchJob. Nothing is made.

        `submit` takes all of them, and gives the same run. `command` is a list of words. `roles` takes the place of a
        command in a job with several. `nodes` is the number of pods; (1, 3) makes an elastic job of 1 to 3. `gpus` of
        each pod. `cpus` of each pod, as in 4 or "100m". `memory` of each pod, as in 16Gi. `env` are variables; a secret
        is refused here. `secret_env` has values of Secrets: {"WANDB_API_KEY": "SECRET/KEY"}. `autoscale` asks for the
        least number of nodes; more come while room is idle. `checkpoint_seconds` is the time to save before workers go
        or restart. `exclude` are patterns of files to leave out. `if_exists` is fail, replace or attach. `in_place`
        runs in the folder itself, on one machine only. `outputs` is the claim for `torchq.output()`, on Kubernetes.
        `model` names what the job trains, and with_models what it reads: digits@3f2a1. `anyway` submits a job that can
        never run, too. `success` is all (every pod has ended with 0) or master (rank 0 has). `retries` restarts the
        pods this often after any failure. `time` is the longest run, as in 2h or 1h30m. `grace` is the time to save
        after SIGTERM, as in 90s. `ttl_seconds` is how long the job stays after its end.
        """
        return await self._call("dry_run", given(locals()))

    async def submit(
        self,
        manifests: Iterable[Mapping[str, Any]],
        *,
        anyway: bool = False,
        dry_run: bool = False,
    ) -> list[Job]:
        """Submit TorchJobs as `torchq submit` does: all of them or none. Each runs in the present folder.

        With `anyway`, jobs that can never run are submitted, too. With `dry_run`, they are only checked.
        """
        return await self._call("submit", given(locals()))

    async def job(self, name: str) -> Job:
        """Return the job of a name, a namespace/name or a handle.

        Raises NotFound if there is no such job, or if the handle belongs to an earlier job of that name.
        """
        return await self._call("job", given(locals()))

    async def jobs(
        self,
        *,
        queue: str | None = None,
        phase: str | None = None,
        namespace: str | None = None,
        all_namespaces: bool = False,
    ) -> list[Job]:
        """Return the jobs of a namespace in the order of submission.

        `phase` is Queued, Admitted, Running, Suspended, Succeeded or Failed.
        """
        return await self._call("jobs", given(locals()))

    async def wait(
        self,
        jobs: Iterable[Job | str],
        *,
        first: bool = False,
        timeout: float | None = None,
        goal: str = "Finished",
    ) -> list[Ending]:
        """Wait until all jobs have ended; with `first`, until one has. Return the ends in the order of the jobs.

        A cancelled or deleted job ends the wait, too. Raises TimedOut; the jobs go on. `timeout` is in seconds
        (default: as long as needed). `goal` is Finished or Running.
        """
        return await self._call("wait", given(locals()))

    def as_completed(self, jobs: Iterable[Job | str], *, timeout: float | None = None) -> AsyncIterator[Job]:
        """Yield each job as it ends. Raises TimedOut; the jobs go on.

        `timeout` is in seconds (default: as long as needed).
        """
        return self._stream("as_completed", given(locals()))

    async def cancel(self, jobs: Iterable[Job | str], *, reason: str = "") -> None:
        """End jobs for good. Their status and their logs stay for a while.

        None of them starts meanwhile. `reason` is recorded in the event of the change.
        """
        await self._call("cancel", given(locals()))

    async def delete(self, jobs: Iterable[Job | str], *, reason: str = "") -> None:
        """Delete jobs, their pods and their status.

        None of them starts meanwhile. `reason` is recorded in the event of the change.
        """
        await self._call("delete", given(locals()))

    async def suspend(self, jobs: Iterable[Job | str], *, reason: str = "") -> None:
        """Delete the pods of jobs and free their charge.

        None of them starts meanwhile. `reason` is recorded in the event of the change.
        """
        await self._call("suspend", given(locals()))

    async def hold(self, jobs: Iterable[Job | str], *, reason: str = "") -> None:
        """Keep waiting jobs out of the order until they are resumed.

        None of them starts meanwhile. `reason` is recorded in the event of the change.
        """
        await self._call("hold", given(locals()))

    async def queues(self) -> list[dict[str, Any]]:
        """Return all queues with their shares and usage, as TenantQueues."""
        return await self._call("queues", {})

    async def queue(self, name: str) -> dict[str, Any]:
        """Return one queue with its shares and usage, as a TenantQueue."""
        return await self._call("queue", given(locals()))

    async def next_picks(self, *, count: int = 20, roomy: bool = False) -> list[dict[str, Any]]:
        """Return the jobs that would be admitted next, in that order.

        `roomy` shows the order as if all jobs had room.
        """
        return await self._call("next_picks", given(locals()))

    async def status(self) -> dict[str, Any]:
        """Return the health of the whole system, as `torchq status` shows it."""
        return await self._call("status", {})

    async def command(self, *arguments: str) -> str:
        """Run any other command of `torchq` that ends by itself, and return what it prints.

        As in `command("queue", "pause", "team-a")`. Raises the error that the command would print.
        """
        return await self._call("command", given(locals()))
