"""torchq on a real API server: coordinator and worker processes and commands, each under its account of deploy/rbac.

One rule: only the node and the `api` client of the test have admin rights. The API server has no kubelet, so the node
of the embedded cluster runs the pods. The API server has no garbage collector, so `clear` deletes pods without a job.
"""

import contextlib
import json
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from coordinator.local import die_with_parent
from coordinator.local.stack_state import Files
from coordinator.local.torchq_processes import FIRST_PORT, LAST_PORT, PORTS_PER_STACK
from coordinator.rbac import account_manifests
from coordinator.rbac.account_manifests import Tenant
from coordinator.rbac.permissions import (
    COORDINATOR,
    LEASE,
    QUEUE_ADMIN,
    RECORDER,
    RECORDER_LEASE,
    RESTORE,
    ROLES,
    USER,
    WORKER,
    Role,
)
from crds.api_resources import LEASES, NODES, PODS, TORCHJOBS
from embedded.redis import server_program as embedded_redis
from kube import client, errors
from kube.api import Manifest
from kube.client import KubernetesCluster
from kube.settings import ConnectionSettings
from tests.support.acceptance.stack import FINAL, CommandResult, Stack, clean_environment, run, torchq_command, until
from tests.support.kube.servers import Server
from tests.support.rbac import access
from tests.support.waiting import patient

NAMESPACE = "default"
"""The namespace of the user's tenant."""
_END_SECONDS = 60.0


@dataclass
class RealStack(Stack):
    """A stack of processes around a real API server, with the methods of the embedded stack."""

    server: Server | None = None
    clusters: dict[str, KubernetesCluster] = field(default_factory=dict)
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def start(self) -> None:
        """Apply deploy/rbac, write the kubeconfigs of the accounts, start all processes, and wait until they work."""
        self._accounts()
        self.process("redis", *embedded_redis.prepare(self.layout).command)
        self.wait_for(lambda: embedded_redis.answers(self.redis_url))
        node = ["--data", str(self.data), "--kubeconfig", str(self.layout.kubeconfig), "--stop-pods"]
        machine = ["--cpus", "4", "--memory", "8Gi", "--gpus", "0"]
        self.process("node", sys.executable, "-m", "embedded.node.node", *node, *machine)
        self.wait_for(lambda: self.api.list(NODES).items)
        self.serve("coordinator", COORDINATOR)
        self.serve("worker", WORKER, "--processes", "2")
        self.serve("recorder", RECORDER)
        leases = {LEASE, RECORDER_LEASE}
        self.wait_for(lambda: leases <= {lease["metadata"]["name"] for lease in self._leases()})

    def _leases(self) -> list[Manifest]:
        return self.api.list(LEASES, account_manifests.LEASE_NAMESPACE).items

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Wait until the condition holds. Fail if a process of the stack ends during the wait."""
        until(lambda: condition() or any(process.poll() is not None for process in self.running.values()))
        for name, process in self.running.items():
            assert process.poll() is None, f"{name} ended:\n{self.log(name).read_text()[-2000:]}"

    def serve(self, command: str, role: Role, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start a coordinator, a worker or a recorder under its account."""
        return self.process(command, *torchq_command(command, *arguments), environment=self.serving(role))

    def serving(self, role: Role) -> dict[str, str]:
        """Return the environment of a process, with the settings that `torchq local` uses."""
        first = random.randrange(FIRST_PORT, LAST_PORT, PORTS_PER_STACK)
        return self.account(role) | {
            "TORCHQ_REDIS_URL": self.redis_url,
            "TORCHQ_MASTER_ADDRESS": "loopback",
            "TORCHQ_GANG_SCHEDULER": "none",
            "TORCHQ_IN_PLACE": "local",
            "TORCHQ_IMPLICIT_QUEUES": "true",
            "TORCHQ_HEALTH_PORT": "-1",
            "TORCHQ_PORT_FIRST": str(first),
            "TORCHQ_PORT_LAST": str(first + PORTS_PER_STACK - 1),
            "TORCHQ_HISTORY_URL": Files(self.data).history_url,
        }

    def process(self, name: str, *command: str, environment: dict[str, str] | None = None) -> "subprocess.Popen[bytes]":
        """Start a process that writes its output to its log and that `close` ends."""
        with self.log(name).open("ab") as log:
            started = subprocess.Popen(
                die_with_parent.wrap_command(command),
                env=environment or clean_environment(),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        self.running[name] = started
        return started

    def log(self, name: str) -> Path:
        """Return the path of the log of a process."""
        path = self.layout.logs(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    @property
    def redis_url(self) -> str:
        return f"unix://{embedded_redis.socket_path(self.layout)}"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a user's commands."""
        return self.account(USER)

    def account(self, role: Role) -> dict[str, str]:
        return clean_environment(TORCHQ_KUBECONFIG=str(self.data / f"{role.name}.kubeconfig"))

    def try_run(self, *arguments: str, text: str | None = None) -> CommandResult:
        """Run a command that may fail, and return its result. The command runs under the account that is meant for
        it.
        """
        role = {"queue": QUEUE_ADMIN, "restore": RESTORE}.get(arguments[0], USER)
        result = run(*arguments, cwd=self.folder, environment=self.account(role), text=text)
        assert "Traceback" not in result.err + result.out, result
        return result

    def connected(self, role: Role) -> KubernetesCluster:
        """Return an API client with the rights of an account. The stack closes it."""
        if role.name not in self.clusters:
            file = self.data / f"{role.name}.kubeconfig"
            self.clusters[role.name] = client.connect(ConnectionSettings(kubeconfig=str(file)))
        return self.clusters[role.name]

    def clear(self) -> None:
        """Delete all jobs and queues, and the finished pods that a garbage collector would delete."""
        for item in self.api.list(TORCHJOBS).items:
            with contextlib.suppress(errors.NotFound):
                self.api.delete(TORCHJOBS, item["metadata"]["name"], item["metadata"]["namespace"])
        for item in self.pods():
            if item["status"].get("phase") in FINAL:
                with contextlib.suppress(errors.NotFound):
                    self.api.delete(PODS, item["metadata"]["name"], item["metadata"]["namespace"])
        super().clear()

    def close(self) -> None:
        """End all processes of the stack and close its API clients."""
        for name in ("recorder", "worker", "coordinator", "node", "redis"):
            self.end(name)
        for each in (self.api, *self.clusters.values()):
            each.close()

    def end(self, name: str) -> int:
        """End a process by SIGTERM and return its exit code."""
        process = self.running.pop(name, None)
        if process is None:
            return 0
        process.terminate()
        return process.wait(patient(_END_SECONDS))

    def _accounts(self) -> None:
        assert self.server is not None
        self.data.mkdir(parents=True)
        self.layout.kubeconfig.write_bytes(self.server.kubeconfig.read_bytes())
        for role in ROLES.values():
            for document in yaml.safe_load_all((access.FILES / role.path).read_text()):
                access.apply(self.server, document)
        access.bind_queue_admin(self.server)
        for document in account_manifests.tenant_manifests(Tenant(namespace=NAMESPACE)):
            access.apply(self.server, document)
        for role in ROLES.values():
            home = NAMESPACE if role is USER else account_manifests.SYSTEM_NAMESPACE
            config = access.kubeconfig(self.server, home, account_manifests.full_name(role))
            (self.data / f"{role.name}.kubeconfig").write_text(json.dumps(config))
