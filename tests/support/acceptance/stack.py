"""A cluster of real processes, met as a user meets it: through the command line, and through the API for looking.

One rule: waiting is for a condition with a deadline, never for time to pass.
"""

import contextlib
import itertools
import json
import os
import signal
import sys
import time
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
from embedded.node.runs import processes
from embedded.redis import server
from kube import client, errors
from kube.client import KubernetesCluster
from kube.settings import ConnectionSettings
from tests.support.acceptance.warm import Said, Warm

DEADLINE_SECONDS = 90.0
COMMAND_SECONDS = 90.0
FINAL = ("Succeeded", "Failed")
EVERYWHERE = pytest.mark.parametrize(
    "stack", ["shared", pytest.param("real", marks=pytest.mark.apiserver)], indirect=True
)
"""For tests that run on a real API server too."""
COMMANDS = Warm()
_NUMBERS = itertools.count(1)


def until(look: Callable[[], Any], true: Callable[[Any], Any] = bool, seconds: float = DEADLINE_SECONDS) -> Any:
    """Look until it is true; what was seen then. Of a server that is away for a moment the next look tells more."""
    deadline = time.monotonic() + seconds
    seen: Any = None
    while time.monotonic() < deadline:
        with contextlib.suppress(errors.Unreachable, errors.ServerError):
            seen = look()
            if true(seen):
                return seen
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s; last seen: {seen}")


def torchq_command(*arguments: str) -> list[str]:
    """The command line, as the interpreter of these tests runs it."""
    return [sys.executable, "-m", "coordinator.cli.main", *arguments]


def clean_environment(**more: str) -> dict[str, str]:
    """The machine's variables without any that speak to torchq or to another cluster."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TORCHQ_", "KUBE"))}
    return kept | more


def run(*arguments: str, cwd: Path, environment: Mapping[str, str], text: str | None = None) -> Said:
    """Run a torchq command to its end."""
    return COMMANDS.run(*arguments, cwd=cwd, environment=environment, text=text, seconds=COMMAND_SECONDS)


def alive(pid: int) -> bool:
    """Whether a process is there and not merely waiting to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@dataclass
class Stack:
    """One embedded cluster and the folder its jobs are submitted from."""

    data: Path
    folder: Path
    options: tuple[str, ...] = ("--cpus", "4", "--memory", "8Gi", "--gpus", "0", "--workers", "2")
    settings: Mapping[str, str] = field(default_factory=dict)
    """What its coordinator and workers find in their environment."""
    pods_seen: set[str] = field(default_factory=set)

    @property
    def layout(self) -> Layout:
        return Layout(self.data)

    @property
    def environment(self) -> dict[str, str]:
        return clean_environment(TORCHQ_KUBECONFIG=str(self.layout.kubeconfig))

    # The command line.

    def torchq(self, *arguments: str, text: str | None = None) -> str:
        """Run a command that must succeed; its output."""
        said = self.tried(*arguments, text=text)
        assert said.code == 0, said
        return said.out

    def tried(self, *arguments: str, text: str | None = None) -> Said:
        """Run a command that may fail. Whatever becomes of it, nobody is shown a traceback."""
        said = run(*arguments, cwd=self.folder, environment=self.environment, text=text)
        assert "Traceback" not in said.err + said.out, said
        return said

    def shown(self, *arguments: str) -> Any:
        """What a command prints for programs."""
        return json.loads(self.torchq(*arguments, "-o", "json"))

    def submit(self, *jobs: Mapping[str, Any], anyway: bool = False) -> list[str]:
        """Submit jobs as one file, also such as can never run if `anyway`; their handles."""
        options = ("--anyway",) if anyway else ()
        return self.torchq("submit", *options, "-", text="\n---\n".join(map(json.dumps, jobs))).split()

    # The stack as a whole.

    def local(self, command: str, *arguments: str) -> Said:
        """Run `torchq local`, which needs no kubeconfig."""
        said = run("local", command, "--data", str(self.data), *arguments, cwd=self.folder, environment=self._bare)
        assert "Traceback" not in said.err + said.out, said
        return said

    def up(self, *options: str) -> Said:
        """Start it with its options."""
        return self.local("up", *self.options, *options)

    def down(self) -> Said:
        """Stop it."""
        return self.local("down")

    def begin(self, command: str, *arguments: str) -> Callable[[], Said]:
        """Begin to run `torchq local`; what to call for its end."""
        executor = ThreadPoolExecutor(1)
        begun = executor.submit(self.local, command, *arguments)
        executor.shutdown(wait=False)
        return begun.result

    def supervisor(self) -> int:
        """The process that runs it, also while it goes down."""
        found = stack_state.supervisor_pid(self.data)
        assert found is not None
        return found

    def pids(self) -> dict[str, int]:
        """Its processes by name."""
        found: dict[str, int] = json.loads(self.local("status", "-o", "json").out)["processes"]
        return found

    def kill(self, name: str) -> int:
        """Kill one of its processes and wait for its end; the pid it had."""
        pid = self.pids()[name]
        os.kill(pid, signal.SIGKILL)
        until(lambda: not alive(pid))  # on a busy machine a killed process holds its locks a moment longer
        return pid

    def pod_processes(self) -> set[int]:
        """Everything that runs for any pod this stack was seen to have."""
        return {pid for uid in self.pods_seen for pid in processes.members(f"{uid}/")}

    @property
    def _bare(self) -> dict[str, str]:
        return clean_environment(**self.settings)

    # Looking.

    @cached_property
    def api(self) -> KubernetesCluster:
        """The same API server that the commands use."""
        return client.connect(ConnectionSettings(kubeconfig=str(self.layout.kubeconfig)))

    def job(self, name: str) -> dict[str, Any]:
        """A TorchJob."""
        return self.api.get(TORCHJOBS, name, "default")

    def phase(self, name: str) -> str:
        """A job's one word."""
        return str((self.job(name).get("status") or {}).get("phase") or "")

    def reach(self, name: str, *phases: str) -> dict[str, Any]:
        """Wait until a job is in one of these phases; the job. Another end than these is an error at once."""

        def look() -> dict[str, Any]:
            job = self.job(name)
            seen = (job.get("status") or {}).get("phase")
            assert seen in phases or seen not in FINAL, job["status"]
            return job

        found = until(look, lambda job: (job.get("status") or {}).get("phase") in phases)
        assert isinstance(found, dict)
        return found

    def admission(self, name: str) -> dict[str, Any]:
        """The room a job holds, or held to its end."""
        found: dict[str, Any] = self.job(name)["status"]["admission"]
        return found

    def pods(self, name: str = "") -> list[dict[str, Any]]:
        """The pods of a job, or all."""
        items = self.api.list(PODS, label_selector=f"{labels.JOB_NAME}={name}" if name else "").items
        self.pods_seen |= {item["metadata"]["uid"] for item in items}
        return items

    def exists(self, name: str) -> bool:
        """Whether a job is there."""
        try:
            self.job(name)
        except errors.NotFound:
            return False
        return True

    # The queues' state, which users cannot see.

    @contextlib.contextmanager
    def redis(self) -> Iterator["redis.Redis"]:
        """A connection to the stack's Redis."""
        connection = redis.Redis(unix_socket_path=str(server.socket_path(self.layout)), decode_responses=True)
        try:
            yield connection
        finally:
            connection.close()

    def charged(self) -> dict[str, Any]:
        """What is counted against the pool and who holds it; both empty when nothing runs."""
        with self.redis() as connection:
            usage, held = connection.hgetall("torchq:usage"), connection.hgetall("torchq:reservations")
        return {**usage, **held}  # type: ignore[dict-item]

    def waiting(self) -> set[str]:
        """The keys of the jobs that wait."""
        with self.redis() as connection:
            return set(map(str, connection.hkeys("torchq:entries")))  # type: ignore[union-attr]

    def is_open(self, queue: str) -> bool:
        """Whether the queue gives room to new jobs; changes of queues take a moment."""
        with self.redis() as connection:
            found = connection.hget("torchq:queues", queue)
        return bool(found and json.loads(str(found))["open"])

    def settled(self) -> bool:
        """Whether nothing is charged and nobody waits."""
        with contextlib.suppress(redis.ConnectionError):
            return not self.charged() and not self.waiting()
        return False

    # Cleaning.

    def clear(self) -> None:
        """Delete all jobs and queues; wait until nothing of them is left anywhere."""
        self.pods()
        for item in self.api.list(TORCHJOBS).items:
            with contextlib.suppress(errors.NotFound):
                self.api.delete(TORCHJOBS, item["metadata"]["name"], item["metadata"]["namespace"])
        until(self.pods, lambda pods: not pods)
        until(self.settled)
        for item in self.api.list(TENANT_QUEUES).items:
            with contextlib.suppress(errors.NotFound):
                self.api.delete(TENANT_QUEUES, item["metadata"]["name"])

    def close(self) -> None:
        """Stop it and let go of it, whatever state it is in."""
        said = self.local("down", "--now")
        if "api" in self.__dict__:
            self.api.close()
        assert said.code == 0, said


def fresh(word: str = "job") -> str:
    """A name nobody has used; later ones sort later, as jobs of one second are ordered by name."""
    return f"{word}{next(_NUMBERS):04d}"
