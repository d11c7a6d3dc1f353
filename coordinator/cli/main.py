"""The `torchq` command.

One rule: commands change things only through the Kubernetes API, so that its access rules hold for them too.
"""

from pathlib import Path
from typing import Any

import click

from coordinator import release
from coordinator.cli import lazy_group
from coordinator.cli.lazy_group import CommandGroup

COMMANDS = {
    "coordinator": "coordinator.cli.commands.processes:coordinator",
    "worker": "coordinator.cli.commands.processes:worker",
    "recorder": "coordinator.cli.history.recorder_process:recorder",
    "local": "coordinator.cli.commands.local:local",
    "run": "coordinator.cli.commands.run:run_command",
    "submit": "coordinator.cli.commands.job:submit",
    "job": "coordinator.cli.jobs.job_group:job",
    "model": "coordinator.cli.models.model_commands:model",
    "queue": "coordinator.cli.commands.queue:queue",
    "history": "coordinator.cli.history.history_commands:history",
    "usage": "coordinator.cli.history.history_commands:usage",
    "scale": "coordinator.cli.commands.scale:scale",
    "pool": "coordinator.cli.commands.inspect:pool",
    "next": "coordinator.cli.commands.inspect:forecast",
    "status": "coordinator.cli.commands.status:status",
    "top": "coordinator.cli.commands.top:top",
    "config": "coordinator.cli.commands.config:config",
    "doctor": "coordinator.cli.commands.doctor:doctor",
    "restore": "coordinator.cli.commands.restore:restore",
    "redis": "coordinator.cli.commands.redis:redis",
    "dashboard": "coordinator.cli.dashboard.group:dashboard",
    "rpc": "coordinator.cli.rpc.rpc_server:rpc",
    "crds": "coordinator.cli.commands.crds:crds",
    "rbac": "coordinator.cli.commands.rbac:rbac",
    "fill-secrets": "coordinator.cli.commands.fill_secrets:fill_secrets",
}


@click.group(
    cls=CommandGroup,
    lazy_commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option("--kubeconfig", help="kubeconfig file (default: $KUBECONFIG, the current local cluster, ~/.kube/config)")
@click.option("--context", help="context of $KUBECONFIG or ~/.kube/config, even if a local cluster is current")
@click.option("-n", "--namespace", help="namespace of the jobs")
@click.option("--redis", "redis_url", help="Redis URL; pass a URL with a password by TORCHQ_REDIS_URL or a file")
@click.option("--redis-url-file", help="file that contains the Redis URL")
@click.option("--coordinator", help="URL of a coordinator's read-only API (default: found through the cluster)")
@click.option("--config", "file", type=click.Path(path_type=Path), envvar="TORCHQ_CONFIG", help="settings file (TOML)")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="lowest level that is logged"
)
@click.version_option(package_name=release.DISTRIBUTION, message="torchq %(version)s")
@click.pass_context
def main(context: click.Context, /, file: Path | None, **flags: Any) -> None:
    """Queue and run distributed PyTorch training. Each tenant has a queue; weights decide which queue is next."""
    # `torchq --version` and `torchq --help` need no session, whose modules take most of the time of a command.
    session = lazy_group.find("coordinator.cli.session:Session")
    context.obj = session({name: value for name, value in flags.items() if value is not None}, file)


if __name__ == "__main__":
    main()
