"""The parts that all commands share: the settings, a connection to the cluster at first use, and the words of errors.

One rule: a user's mistake or a server's refusal is one message and exit code 1; a wrong command line is exit code 2;
never a traceback.
"""

import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import click

from coordinator import settings as settings_module
from coordinator.access.shown_tokens import ShownTokens
from coordinator.cli import log_format
from coordinator.cli.lazy_group import LazyGroup
from coordinator.cli.refusals import words
from coordinator.local import target
from coordinator.local.target import ClusterTarget
from coordinator.rbac.permissions import COORDINATOR, DASHBOARD, RECORDER, USER, WORKER, Role
from coordinator.settings import Resolved, Settings
from kube import client, errors
from kube.client import KubernetesCluster
from kube.process.meter import NO_METER, Meter
from kube.settings import ConnectionSettings, RetrySettings
from queues.redis.location import Location
from reconcilers.settings import ASKS_PER_WRITE

WATCH_CONNECTIONS = 16
"""Connections for watches, more than any process needs."""
REVIEW_SECONDS = 5.0
"""How long the API server may take for the review of a token."""
REVIEWS_PER_SECOND = 100
SERVER_ROLES = (COORDINATOR, WORKER, RECORDER, DASHBOARD)
"""Roles of processes that serve all users. They ignore the local cluster that is current for the user who starts them.
"""


@dataclass(frozen=True)
class Session:
    """One invocation of `torchq`."""

    flags: Mapping[str, Any]
    file: Path | None
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    agent: str = "torchq"
    """The user agent. The audit log and the metrics of the API server distinguish clients by it."""
    meter: Meter = NO_METER
    """What counts the requests to the API server."""
    role: Role = USER
    """The role whose permissions this invocation needs; a message about a missing permission names it."""
    everywhere: bool = False
    """Whether this invocation asks about the jobs of all namespaces."""

    @cached_property
    def resolved_settings(self) -> Resolved:
        """The settings with their sources."""
        return settings_module.resolve(self.flags, self.environ, self.file)

    @property
    def settings(self) -> Settings:
        """The settings."""
        return self.resolved_settings.settings

    def with_flags(self, **flags: Any) -> "Session":
        """Return the same invocation with a command's own flags added."""
        given_flags = {name: value for name, value in flags.items() if value is not None}
        return replace(self, flags={**self.flags, **given_flags})

    def with_user_agent(self, agent: str) -> "Session":
        """Return the same invocation with another user agent."""
        return replace(self, agent=agent)

    def with_meter(self, meter: Meter) -> "Session":
        """Return the same invocation with a meter that counts its requests to the API server and its scripts in
        Redis."""
        session = replace(self, meter=meter)
        session.settings.redis.meter = meter
        return session

    def with_role(self, role: Role) -> "Session":
        """Return the same invocation with another role."""
        return replace(self, role=role)

    def with_all_namespaces(self) -> "Session":
        """Return the same invocation for questions about the jobs of all namespaces."""
        return replace(self, everywhere=True)

    @cached_property
    def shown_tokens(self) -> ShownTokens:
        """The tokens that this invocation shows to coordinators."""
        say = partial(click.echo, err=True)
        return ShownTokens(self.cluster, self.namespace, everywhere=self.everywhere, say=say)

    @cached_property
    def cluster(self) -> KubernetesCluster:
        """The Kubernetes API that the settings name."""
        return client.connect(self.connection, self.meter)

    @cached_property
    def target(self) -> ClusterTarget:
        """The cluster that commands use, and what selected it. Raises LocalError if the cluster cannot be
        determined."""
        return target.find(self.resolved_settings, self.environ, serves=self.role in SERVER_ROLES)

    @property
    def is_embedded(self) -> bool:
        """Whether the cluster is a local one."""
        return self.target.data is not None

    @cached_property
    def cluster_name(self) -> str:
        """The short name of the cluster, for people."""
        return target.short_name(self.target, self.settings.context, self.environ)

    @property
    def connection(self) -> ConnectionSettings:
        """The connection to the Kubernetes API. Raises LocalError for a local cluster that does not run."""
        settings = self.settings
        self.target.check()
        return ConnectionSettings(
            kubeconfig=settings.kubeconfig or (self.target.kubeconfig if self.target.implied else ""),
            context=settings.context,
            read_timeout=settings.api_timeout,
            requests_per_second=settings.api_qps,
            burst=settings.api_burst,
            pool_connections=settings.threads + ASKS_PER_WRITE * settings.parallel_writes + WATCH_CONNECTIONS,
            user_agent=self.agent,
            permission_hint=self.role.remedy,
        )

    @cached_property
    def lease_cluster(self) -> KubernetesCluster:
        """The same API for the leader's Lease. A request without an answer within `renew_seconds` fails and is not
        repeated. Two such requests fit into the duration of a lease."""
        seconds = min(self.settings.renew_seconds, self.settings.api_timeout)
        return self._once(read_timeout=seconds, connect_timeout=seconds, requests_per_second=0.0)

    @cached_property
    def status_cluster(self) -> KubernetesCluster:
        """The same API for the statuses that the leader writes. A request that fails is not repeated, so that the
        statuses of other objects need not wait for the failed one."""
        return self._once()

    @cached_property
    def review_cluster(self) -> KubernetesCluster:
        """The same API for the reviews of tokens, which anybody can cause: they take nothing of the pace of other
        requests. A review that fails is not repeated."""
        return self._once(
            read_timeout=REVIEW_SECONDS,
            connect_timeout=REVIEW_SECONDS,
            requests_per_second=float(REVIEWS_PER_SECOND),
            burst=REVIEWS_PER_SECOND,
        )

    def _once(self, **changes: Any) -> KubernetesCluster:
        """Return the same API through a client that repeats no request, with other changes of its connection."""
        return client.connect(replace(self.connection, retries=RetrySettings(attempts=1), **changes), self.meter)

    @property
    def namespace(self) -> str:
        """The namespace of the jobs that commands name."""
        return self.settings.namespace or client.default_namespace(self.connection)

    @property
    def redis(self) -> Location:
        """The Redis of the settings. If the settings name no Redis, the Redis of the embedded cluster that commands
        use.
        """
        kubeconfig = self.connection.kubeconfig or self.environ.get("KUBECONFIG", "")
        noted = Path(kubeconfig).parent / settings_module.REDIS_URL_NOTE
        if self.resolved_settings.sources["redis_url"] == "default" and kubeconfig and noted.is_file():
            return Location(noted.read_text())
        return self.settings.redis

    def environment(self) -> dict[str, str]:
        """Return the settings that are not defaults as environment variables for a child process. A process list shows
        arguments, so secrets must not travel there."""
        non_defaults = {
            name: getattr(self.settings, name)
            for name, source in self.resolved_settings.sources.items()
            if source != "default"
        }
        if self.settings.redis_url_file:  # a child reads the URL by itself, as it may change
            non_defaults["redis_url"] = ""
        return {f"{settings_module.PREFIX}{name.upper()}": str(value) for name, value in non_defaults.items()}


def start_log(settings: Settings) -> None:
    """Write the log to standard error, one line per event."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(log_format.formatter(settings.log_format))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    logging.getLogger("urllib3").setLevel(logging.INFO)  # at the level debug, it logs two lines per request


def format_error(error: Exception) -> str:
    """Format an expected error for people."""
    return format_invalid(error) if isinstance(error, errors.Invalid) else str(error)


def format_invalid(error: errors.Invalid) -> str:
    """Format a refusal with one line per field, in plain words."""
    if not error.causes:
        return str(error)
    causes = words.plain_causes(error.causes)
    lines = [f"  {cause.field}: {cause.message}" if cause.field else f"  {cause.message}" for cause in causes]
    return "\n".join([words.title(str(error)), *lines])


class JobGroup(LazyGroup):
    """A group of commands about jobs, each of which takes `-n`."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name, with the option `-n`; None if no such command exists."""
        command = super().get_command(ctx, cmd_name)
        return None if command is None else with_namespace(command)


def with_namespace(command: click.Command) -> click.Command:
    """Add the option `-n` to a command about jobs that has none, so that the option may also come after the command's
    name.
    """

    def use(context: click.Context, _parameter: click.Parameter, namespace: str | None) -> None:
        session = context.find_object(Session)
        if namespace is not None and session is not None:
            context.obj = session.with_flags(namespace=namespace)

    if not any("--namespace" in parameter.opts for parameter in command.params):
        names, text = ["-n", "--namespace"], "namespace of the jobs"
        command.params.append(click.Option(names, expose_value=False, callback=use, help=text))
    return command


pass_session = click.make_pass_decorator(Session)
