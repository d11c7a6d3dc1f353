"""`torchq dashboard` and its commands.

One rule: without a command it shows the pages of the user who runs it.
"""

import click

from coordinator.cli.lazy_group import LazyGroup, find

COMMANDS = {
    "token": "coordinator.cli.dashboard.login_token:token",
    "serve": "coordinator.cli.dashboard.serve:serve",
}


@click.group(cls=LazyGroup, lazy_commands=COMMANDS, invoke_without_command=True)
@click.option(
    "--port", type=click.IntRange(1, 65_535), help="port of the pages (default: 8470, else the next one that is free)"
)
@click.option("--no-open", is_flag=True, help="do not open a browser")
@click.option("-A", "--all-namespaces", is_flag=True, help="jobs of all namespaces")
@click.option("-n", "--namespace", help="namespace of the jobs")
@click.pass_context
def dashboard(
    context: click.Context, port: int | None, no_open: bool, all_namespaces: bool, namespace: str | None
) -> None:
    """Show the queues in a browser, live. Your kubeconfig decides what the pages show. Ctrl-C ends it."""
    session = context.obj.with_user_agent("torchq-dashboard").with_flags(namespace=namespace)
    context.obj = session.with_all_namespaces() if all_namespaces else session
    if context.invoked_subcommand is None:
        show = find("coordinator.cli.dashboard.by_hand:show")
        show(context.obj, port, no_open=no_open)
