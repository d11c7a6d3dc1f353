"""What every command shares: the settings, a connection to the cluster made when first needed, and how trouble is told.

One rule: a user's mistake or a server's refusal is one message and exit code 1; a wrong command line is exit code 2;
never a traceback.
"""

import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import click

from coordinator import settings as settings_module
from coordinator.cli.lazy_group import OnDemand
from coordinator.errors import CoordinatorError
from coordinator.local import target
from coordinator.local.target import Target
from coordinator.rbac.permissions import COORDINATOR, USER, WORKER, Role
from coordinator.settings import Resolved, Settings
from crds.errors import InvalidObject
from kube import client, errors
from kube.client import KubernetesCluster
from kube.settings import ConnectionSettings, RetrySettings
from queues.errors import QueueError

WATCHED = 16
"""More connections than a process watches by, and to spare."""
SERVING = (COORDINATOR, WORKER)
"""Processes that run for everybody: they do not follow what is current for the user who starts them."""
SHOWN = (CoordinatorError, errors.ClusterError, QueueError, InvalidObject)


@dataclass(frozen=True)
class Session:
    """One invocation of `torchq`."""

    flags: Mapping[str, Any]
    file: Path | None
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    agent: str = "torchq"
    """How this process introduces itself to the API server, whose audit log and metrics tell clients apart by it."""
    role: Role = USER
    """Whose permissions it needs; named where one is missing."""

    @cached_property
    def resolved(self) -> Resolved:
        """The settings with their sources."""
        return settings_module.resolve(self.flags, self.environ, self.file)

    @property
    def settings(self) -> Settings:
        """The settings."""
        return self.resolved.settings

    def with_flags(self, **flags: Any) -> "Session":
        """The same invocation with a command's own flags added."""
        given = {name: value for name, value in flags.items() if value is not None}
        return replace(self, flags={**self.flags, **given})

    def introduced(self, agent: str) -> "Session":
        """The same invocation under a name of its own."""
        return replace(self, agent=agent)

    def acting_as(self, role: Role) -> "Session":
        """The same invocation by another kind of account."""
        return replace(self, role=role)

    @cached_property
    def cluster(self) -> KubernetesCluster:
        """The Kubernetes API the settings name."""
        return client.connect(self.connection)

    @cached_property
    def target(self) -> Target:
        """Which cluster the commands go to, and why that one. LocalError if that cannot be told."""
        return target.find(self.resolved, self.environ, serves=self.role in SERVING)

    @cached_property
    def cluster_word(self) -> str:
        """The cluster in one word, for people."""
        return target.word(self.target, self.settings.context, self.environ)

    @property
    def connection(self) -> ConnectionSettings:
        """How to reach the Kubernetes API. LocalError if it is that of a local cluster that does not run."""
        settings = self.settings
        self.target.check()
        return ConnectionSettings(
            kubeconfig=settings.kubeconfig or (self.target.kubeconfig if self.target.implied else ""),
            context=settings.context,
            read_timeout=settings.api_timeout,
            requests_per_second=settings.api_qps,
            burst=settings.api_burst,
            pool_connections=settings.threads + settings.parallel_writes + WATCHED,
            user_agent=self.agent,
            permission_hint=self.role.remedy,
        )

    @cached_property
    def impatient(self) -> KubernetesCluster:
        """The same API for the leader's Lease: a request that has no answer within `renew_seconds` is given up, and not
        repeated. Two of them fit into a lease with time to spare."""
        seconds = min(self.settings.renew_seconds, self.settings.api_timeout)
        once = RetrySettings(attempts=1)
        return client.connect(
            replace(self.connection, read_timeout=seconds, connect_timeout=seconds, retries=once, requests_per_second=0)
        )

    @property
    def namespace(self) -> str:
        """The namespace commands act in."""
        return self.settings.namespace or client.default_namespace(self.connection)

    @property
    def redis_url(self) -> str:
        """The Redis of the settings; where they name none, that of the embedded cluster the commands speak to."""
        kubeconfig = self.connection.kubeconfig or self.environ.get("KUBECONFIG", "")
        noted = Path(kubeconfig).parent / settings_module.REDIS_URL_NOTE
        if self.resolved.sources["redis_url"] == "default" and kubeconfig and noted.is_file():
            return noted.read_text()
        return self.settings.redis_url

    def environment(self) -> dict[str, str]:
        """The settings that are not defaults, for a child process: by environment, so that no secret is in a process
        list."""
        chosen = {
            name: getattr(self.settings, name) for name, source in self.resolved.sources.items() if source != "default"
        }
        return {f"{settings_module.PREFIX}{name.upper()}": str(value) for name, value in chosen.items()}


def start_log(level: str) -> None:
    """Log lines to standard error, one per event."""
    logging.basicConfig(
        stream=sys.stderr, level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )


class Commands(OnDemand):
    """A group whose commands' failures are messages."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; tell trouble in one message and exit 1."""
        try:
            return super().invoke(ctx)
        except errors.Invalid as error:
            raise click.ClickException(invalid(error)) from error
        except SHOWN as error:
            raise click.ClickException(str(error)) from error
        except BrokenPipeError:
            sys.stderr.close()  # the reader went away, as `head` does
            raise SystemExit(0) from None


def invalid(error: errors.Invalid) -> str:
    """A refusal with one line per field, in the server's words; its own one-line sum of them is left out."""
    if not error.causes:
        return str(error)
    title, known, _ = str(error).partition(" is invalid: ")
    lines = [f"  {cause.field}: {cause.message}" if cause.field else f"  {cause.message}" for cause in error.causes]
    return "\n".join([f"{title} is invalid:" if known else str(error), *lines])


pass_session = click.make_pass_decorator(Session)
