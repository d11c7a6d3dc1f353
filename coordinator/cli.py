"""The `torchq` command.

One rule: commands change things only through the Kubernetes API, so that its access rules hold for them too.
"""

import gc
from pathlib import Path
from typing import Any

import click

from coordinator import (
    commands_doctor,
    commands_job,
    commands_local,
    commands_look,
    commands_queue,
    commands_rbac,
    commands_redis,
    commands_restart,
    commands_serve,
    commands_steer,
    output,
    settings,
)
from coordinator.session import Commands, Session, pass_session
from crds import generate


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--kubeconfig", help="kubeconfig file (default: $KUBECONFIG, ~/.kube/config, then the embedded cluster's)"
)
@click.option("--context", help="context of the kubeconfig")
@click.option("-n", "--namespace", help="namespace to act in")
@click.option("--redis", "redis_url", help="Redis URL; one with a password goes into TORCHQ_REDIS_URL or a file")
@click.option("--redis-url-file", help="file with the Redis URL in it")
@click.option("--coordinator", help="URL of a coordinator to ask about the queues (default: the cluster knows)")
@click.option("--config", "file", type=click.Path(path_type=Path), envvar="TORCHQ_CONFIG", help="settings file (TOML)")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="what goes to the log")
@click.version_option(package_name="torchq", message="torchq %(version)s")
@click.pass_context
def main(context: click.Context, /, file: Path | None, **flags: Any) -> None:
    """Queues for distributed PyTorch training: tenants own queues, weights decide whose job goes next."""
    context.obj = Session({name: value for name, value in flags.items() if value is not None}, file)


@main.command()
def crds() -> None:
    """Print the CustomResourceDefinitions, ready for `kubectl apply -f -`."""
    click.echo(generate.documents(), nl=False)


@main.command()
@click.option("-o", "form", type=click.Choice(["json", "yaml"]), help="print for programs")
@pass_session
def config(session: Session, form: str | None) -> None:
    """Print every setting, its value and where it came from. Secrets are masked."""
    resolved = session.resolved
    values = {name: settings.masked(name, getattr(resolved.settings, name)) for name in settings.Settings.model_fields}
    if form:
        output.show({name: {"value": value, "source": resolved.sources[name]} for name, value in values.items()}, form)
        return
    rows = [(name, value or '""', resolved.sources[name]) for name, value in values.items()]
    click.echo(output.columns(("SETTING", "VALUE", "SOURCE"), rows))


main.add_command(commands_serve.coordinator)
main.add_command(commands_serve.worker)
main.add_command(commands_local.local)
main.add_command(commands_job.submit)
main.add_command(commands_job.job)
for command in (*commands_steer.COMMANDS, commands_restart.restart, *commands_look.COMMANDS):
    commands_job.job.add_command(command)
main.add_command(commands_queue.queue)
main.add_command(commands_look.foretell)
main.add_command(commands_look.status)
main.add_command(commands_look.top)
main.add_command(commands_doctor.doctor)
main.add_command(commands_redis.redis)
main.add_command(commands_rbac.rbac)

# What was imported lives as long as the process: looking through it, at last when the process ends, took a sixth of the
# time of a command.
gc.freeze()

if __name__ == "__main__":
    main()
