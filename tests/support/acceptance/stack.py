"""A cluster of real processes. Tests act through the command line, and read its state through the API.

One rule: tests wait for a condition with a deadline, never for time to pass.
"""

import contextlib
import itertools
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import redis

from coordinator.local import stack_state
from crds import labels
from crds.api_resources import PODS, TENANT_QUEUES, TORCHJOBS
from embedded.layout import Layout
from embedded.node.runs import container_processes
from embedded.redis import server_program
from kube import client, errors
from kube.client import KubernetesCluster
from kube.settings import ConnectionSettings
from tests.support import waiting
from tests.support.acceptance.warm import CommandResult, Warm

DEADLINE_SECONDS = 90.0
PAUSE_SECONDS = 0.05
COMMAND_SECONDS = 90.0
FINAL = ("Succeeded", "Failed")
EVERYWHERE = pytest.mark.parametrize(
    "stack", ["shared", pytest.param("real", marks=pytest.mark.apiserver)], indirect=True
)
"""The mark of tests that also run on a real API server."""
COMMANDS = Warm()
_NUMBERS = itertools.count(1)


def until(look: Callable[[], Any], true: Callable[[Any], Any] = bool, seconds: float = DEADLINE_SECONDS) -> Any:
    """Call `look` until `true` accepts its result, and return that result. Retry while a server does not answer."""

    def tried() -> tuple[bool, Any]:
        try:
            return True, look()
        except (errors.Unreachable, errors.ServerError) as error:
            return False, error

    return waiting.until(tried, lambda found: found[0] and true(found[1]), seconds, pause=PAUSE_SECONDS)[1]


def torchq_command(*arguments: str) -> list[str]:
    """Return a torchq command line for the Python interpreter of these tests."""
    return [sys.executable, "-m", "coordinator.cli.main", *arguments]


def clean_environment(**more: str) -> dict[str, str]:
    """Return the variables of this process without the variables that configure torchq or name a cluster."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TORCHQ_", "KUBE"))}
    return kept | more


def run(*arguments: str, cwd: Path, environment: Mapping[str, str], text: str | None = None) -> CommandResult:
    """Run a torchq command to its end and return its result."""
    return COMMANDS.run(
        *arguments, cwd=cwd, environment=environment, text=text, seconds=waiting.patient(COMMAND_SECONDS)
    )


def alive(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@dataclass
class Stack:
    """An embedded cluster, and the folder from which its jobs are submitted."""

    data: Path
    folder: Path
    options: tuple[str, ...] = ("--cpus", "4", "--memory", "8Gi", "--gpus", "0", "--workers", "2")
    settings: Mapping[str, str] = field(default_factory=dict)
    """Additional environment variables of its coordinator and workers."""
    pods_seen: set[str] = field(default_factory=set)

    @property
    def layout(self) -> Layout:
        return Layout(self.data)

    @property
    def environment(self) -> dict[str, str]:
        return clean_environment(TORCHQ_KUBECONFIG=str(self.layout.kubeconfig))

    # Commands.

    def torchq(self, *arguments: str, text: str | None = None) -> str:
        """Run a command that must succeed, and return its output."""
        said = self.try_run(*arguments, text=text)
        assert said.code == 0, said
        return said.out

    def try_run(self, *arguments: str, text: str | None = None) -> CommandResult:
        """Run a command that may fail, and return its result. The output of the command must not contain a
        traceback.
        """
        said = run(*arguments, cwd=self.folder, environment=self.environment, text=text)
        assert "Traceback" not in said.err + said.out, said
        return said

    def output_json(self, *arguments: str) -> Any:
        """Run a command with `-o json` and return the decoded output."""
        return json.loads(self.torchq(*arguments, "-o", "json"))

    def submit(self, *jobs: Mapping[str, Any], anyway: bool = False) -> list[str]:
        """Submit jobs as one file and return their handles. With `anyway`, submit jobs that can never run, too."""
        options = ("--anyway",) if anyway else ()
        return self.torchq("submit", *options, "-", text="\n---\n".join(map(json.dumps, jobs))).split()

    # Start and end of the stack.

    def local(self, command: str, *arguments: str) -> CommandResult:
        """Run a `torchq local` command, which needs no kubeconfig, and return its result."""
        said = run("local", command, "--data", str(self.data), *arguments, cwd=self.folder, environment=self._bare)
        assert "Traceback" not in said.err + said.out, said
        return said

    def up(self, *options: str) -> CommandResult:
        """Start the cluster with the options of the stack."""
        return self.local("up", *self.options, *options)

    def down(self) -> CommandResult:
        """Stop the cluster."""
        return self.local("down")

    def begin(self, command: str, *arguments: str) -> Callable[[], CommandResult]:
        """Start a `torchq local` command in a thread. Return a function that waits for its result."""
        executor = ThreadPoolExecutor(1)
        begun = executor.submit(self.local, command, *arguments)
        executor.shutdown(wait=False)
        return begun.result

    def supervisor(self) -> int:
        """Return the process id of the supervisor, even while the cluster stops."""
        found = stack_state.supervisor_pid(self.data)
        assert found is not None
        return found

    def pids(self) -> dict[str, int]:
        """Return the process ids of the cluster by name."""
        found: dict[str, int] = json.loads(self.local("status", "-o", "json").out)["processes"]
        return found

    def kill(self, name: str) -> int:
        """Kill a process of the cluster, wait for its end, and return its process id."""
        pid = self.pids()[name]
        os.kill(pid, signal.SIGKILL)
        until(lambda: not alive(pid))  # on a busy machine, a killed process holds its locks for a moment
        return pid

    def pod_processes(self) -> set[int]:
        """Return the ids of all processes of the pods that `pods` has returned so far."""
        return {pid for uid in self.pods_seen for pid in container_processes.members(f"{uid}/")}

    @property
    def _bare(self) -> dict[str, str]:
        return clean_environment(**self.settings)

    # State of the cluster.

    @cached_property
    def api(self) -> KubernetesCluster:
        """A client of the API server that the commands use."""
        return client.connect(ConnectionSettings(kubeconfig=str(self.layout.kubeconfig)))

    def job(self, name: str) -> dict[str, Any]:
        """Return a TorchJob."""
        return self.api.get(TORCHJOBS, name, "default")

    def phase(self, name: str) -> str:
        """Return the phase of a job, or an empty string if the job has no phase."""
        return str((self.job(name).get("status") or {}).get("phase") or "")

    def reach(self, name: str, *phases: str) -> dict[str, Any]:
        """Wait until a job is in one of the phases, and return the job. Fail at once if the job ends in another
        phase.
        """

        def look() -> dict[str, Any]:
            job = self.job(name)
            seen = (job.get("status") or {}).get("phase")
            assert seen in phases or seen not in FINAL, job["status"]
            return job

        found = until(look, lambda job: (job.get("status") or {}).get("phase") in phases)
        assert isinstance(found, dict)
        return found

    def admission(self, name: str) -> dict[str, Any]:
        """Return the admission of a job, which stays in its status after its end."""
        found: dict[str, Any] = self.job(name)["status"]["admission"]
        return found

    def pods(self, name: str = "") -> list[dict[str, Any]]:
        """Return the pods of a job, or all pods without a name."""
        items = self.api.list(PODS, label_selector=f"{labels.JOB_NAME}={name}" if name else "").items
        self.pods_seen |= {item["metadata"]["uid"] for item in items}
        return items

    def exists(self, name: str) -> bool:
        """Return whether a job exists."""
        try:
            self.job(name)
        except errors.NotFound:
            return False
        return True

    # State of the queues in Redis, which users cannot read.

    @contextlib.contextmanager
    def redis(self) -> Iterator["redis.Redis"]:
        """Yield a connection to the Redis of the stack."""
        connection = redis.Redis(unix_socket_path=str(server_program.socket_path(self.layout)), decode_responses=True)
        try:
            yield connection
        finally:
            connection.close()

    def charged(self) -> dict[str, Any]:
        """Return usage and reservations of the queues. The result is empty when no job runs."""
        with self.redis() as connection:
            usage, held = connection.hgetall("torchq:usage"), connection.hgetall("torchq:reservations")
        return {**usage, **held}  # type: ignore[dict-item]

    def waiting(self) -> set[str]:
        """Return the keys of the waiting jobs."""
        with self.redis() as connection:
            return set(map(str, connection.hkeys("torchq:entries")))  # type: ignore[union-attr]

    def is_open(self, queue: str) -> bool:
        """Return whether the queue admits new jobs. A change of a queue reaches Redis after a moment."""
        with self.redis() as connection:
            found = connection.hget("torchq:queues", queue)
        return bool(found and json.loads(str(found))["open"])

    def is_settled(self) -> bool:
        """Return whether no job holds resources and no job waits."""
        with contextlib.suppress(redis.ConnectionError):
            return not self.charged() and not self.waiting()
        return False

    # Cleanup.

    def clear(self) -> None:
        """Delete all jobs and queues. Wait until the pods and the state of the jobs are gone."""
        self.pods()
        for item in self.api.list(TORCHJOBS).items:
            with contextlib.suppress(errors.NotFound):
                self.api.delete(TORCHJOBS, item["metadata"]["name"], item["metadata"]["namespace"])
        until(self.pods, lambda pods: not pods)
        until(self.is_settled)
        for item in self.api.list(TENANT_QUEUES).items:
            with contextlib.suppress(errors.NotFound):
                self.api.delete(TENANT_QUEUES, item["metadata"]["name"])

    def close(self) -> None:
        """Stop the cluster in any state, and close the API client."""
        said = self.local("down", "--now")
        if "api" in self.__dict__:
            self.api.close()
        assert said.code == 0, said


def fresh(word: str = "job") -> str:
    """Return a new name. Later names sort after earlier names, because jobs of the same second are ordered by name."""
    return f"{word}{next(_NUMBERS):04d}"
