"""The commands of a stack's coordinator, workers and recorder, with the settings for one machine.

One rule: settings of the user take the place of those for one machine, but for the parts that a stack has of its own:
its cluster, Redis and port for reports.
"""

import contextlib
import os
import random
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from coordinator import release
from coordinator.access import key_files
from coordinator.local import option_checks
from coordinator.local.stack_shutdown import TORCHQ
from coordinator.local.stack_state import Files
from coordinator.local.supervisor import Command

PORTS_PER_STACK = 1_000
"""The size of a stack's block of ports for masters. Random blocks keep two stacks on one machine apart in most cases.
"""
FIRST_PORT, LAST_PORT = 10_000, 29_000
"""The range of these ports. It is below those that users write into scripts after the defaults of PyTorch (29500),
and below the ephemeral ports of Linux (32768 and up), which any program may get."""


@dataclass(frozen=True)
class TorchqProcesses:
    """The processes of torchq in one stack."""

    files: Files
    own: Mapping[str, str]
    """The settings of the user, as variables."""
    redis_url: str
    redis_file: str
    """The file with the URL of a Redis that the stack does not start; empty if there is no such file."""

    def coordinator_and_workers(self, workers: int) -> Iterator[Command]:
        """Return the commands of the coordinator and of a number of workers."""
        first = random.randrange(FIRST_PORT, LAST_PORT, PORTS_PER_STACK)
        for secret in self.files.secrets:
            key_files.make(secret)
        defaults = {
            "TORCHQ_MASTER_ADDRESS": "loopback",
            "TORCHQ_GANG_SCHEDULER": "none",  # the embedded scheduler binds all pods of a job or none by itself
            "TORCHQ_IN_PLACE": "local",
            "TORCHQ_IMPLICIT_QUEUES": "true",
            "TORCHQ_HEALTH_PORT": "-1",  # any free port; the Lease names it
            "TORCHQ_PORT_FIRST": str(first),
            "TORCHQ_PORT_LAST": str(first + PORTS_PER_STACK - 1),
        }
        report_port = _report_port(self.files)
        forced = {
            "TORCHQ_REPORT_PORT": str(report_port),
            "TORCHQ_REPORT_KEY_FILE": str(self.files.report_key),
            "TORCHQ_REPORT_URL": f"http://127.0.0.1:{report_port}",
        }
        environment = {**os.environ, **defaults, **self.own, **self._forced, **forced}
        yield self._command("coordinator", ["coordinator"], environment)
        for index in range(workers):
            yield self._command(f"worker-{index}", ["worker", "--single"], environment)

    def recorder(self) -> Command:
        """Return the command of the recorder. Commands read its database themselves: it needs no port for them."""
        history = {} if "TORCHQ_HISTORY_URL_FILE" in self.own else {"TORCHQ_HISTORY_URL": self.files.history_url}
        environment = {**os.environ, **history, **self.own, **self._forced, "TORCHQ_HEALTH_PORT": "0"}
        return self._command("recorder", ["recorder"], environment)

    @cached_property
    def _forced(self) -> dict[str, str]:
        """The settings that no setting of the user replaces, nor the environment of a pod in which the stack starts."""
        return {
            "TORCHQ_KUBECONFIG": str(self.files.layout.kubeconfig),
            "TORCHQ_CONTEXT": "",
            "TORCHQ_REDIS_URL": "" if self.redis_file else self.redis_url,
            "TORCHQ_REDIS_URL_FILE": self.redis_file,
            "TORCHQ_METRICS_PORT": "-1",  # each process has a port, and tells the supervisor of it
            "TORCHQ_METRICS_ADDRESS": "127.0.0.1",
            "TORCHQ_METRICS_TOKEN_FILE": str(self.files.metrics_token),
        }

    def _command(self, name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Command:
        return Command(
            name=name,
            arguments=[*release.MODULE, "coordinator.cli.main", *arguments],
            environment=environment,
            output=self.files.layout.logs(name),
            stage=TORCHQ,
            tells=True,
        )


def _report_port(files: Files) -> int:
    """Return the port of the last start, which running pods know; if another program uses it, any free port."""
    port = noted_port(files.report_port)
    if option_checks.is_free(port):
        return port
    files.report_port.unlink(missing_ok=True)
    return noted_port(files.report_port)


def noted_port(note: Path) -> int:
    """Return the port of the last start, so that kubeconfigs stay valid; at the first start any free port."""
    with contextlib.suppress(OSError, ValueError):
        if 0 < (noted_port := int(note.read_text())) < 65_536:
            return noted_port
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    note.write_text(str(port))
    return port
