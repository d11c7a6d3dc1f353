"""`torchq local`: everything on one machine in one command.

One rule: a data folder is a cluster; two of them are two clusters.
"""

import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click
from click.core import ParameterSource

from coordinator import settings
from coordinator.cli import output
from coordinator.cli.session import SHOWN, Session, pass_session, start_log
from coordinator.errors import LocalError, SettingsError
from coordinator.local import (
    background_start,
    current_cluster,
    messages,
    option_checks,
    private_folder,
    remaining_pods,
    stack,
    stack_state,
    supervisor,
    target,
    user_folders,
)
from coordinator.local import (
    down as local_down,
)
from coordinator.local.background_start import Channel, Progress
from coordinator.local.stack import Options
from coordinator.local.stack_state import Files
from queues.redis import url


class DataFolder(click.Path):
    """A folder, by its absolute path; an empty text, as of a variable that is not set, is not the current one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See click.Path."""
        if value == "":
            self.fail("it is empty; name a folder", param, ctx)
        try:
            return Path(os.fsdecode(super().convert(value, param, ctx))).absolute()
        except FileNotFoundError:
            self.fail("the current folder is gone; name a folder from the root", param, ctx)


DATA = click.option(
    "--data",
    type=DataFolder(path_type=Path, file_okay=False),
    default=user_folders.default_data,
    show_default="~/.local/state/torchq",
    help="folder of the cluster",
)
COMMAND = (sys.executable, "-m", "coordinator.cli.main")
NEXT = """next:
  torchq queue create team-a --weight 3
  torchq submit JOB.yaml
  torchq job list
  export KUBECONFIG={kubeconfig}    # for kubectl"""


def _checked(check: Callable[[str], str]) -> Callable[[click.Context, click.Parameter, str], str]:
    """A callback for an option with such a value; the option may be left out, but not be empty."""

    def callback(context: click.Context, parameter: click.Parameter, text: str) -> str:
        if not text and context.get_parameter_source(str(parameter.name)) is not ParameterSource.COMMANDLINE:
            return text
        try:
            return check(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    return callback


@click.group()
def local() -> None:
    """Run a whole cluster on this machine: API server, Redis, node, coordinator and workers."""


@local.command()
@DATA
@click.option(
    "--cpus", default="", callback=_checked(option_checks.cpus), help="CPUs of the node (default: this machine's)"
)
@click.option(
    "--memory",
    default="",
    callback=_checked(option_checks.memory),
    help="memory of the node, e.g. 64Gi (default: this machine's)",
)
@click.option(
    "--gpus", default="", callback=_checked(option_checks.gpus), help="GPUs of the node (default: this machine's)"
)
@click.option(
    "--container-log-max-size",
    "log_size",
    default="64Mi",
    show_default=True,
    callback=_checked(stack.checked_log_size),
    help="output kept of each container, all its log files together",
)
@click.option("--workers", default=2, show_default=True, type=click.IntRange(1, 256), help="worker processes")
@click.option(
    "--port", default=0, type=click.IntRange(0, 65_535), help="port of the API server (default: any free one)"
)
@click.option("--redis", default="", help="URL of a Redis that runs (default: the cluster starts its own)")
@click.option("--foreground", is_flag=True, help="stay, until Ctrl-C")
@click.option("--no-current", is_flag=True, help="leave torchq's commands with the cluster that they go to now")
@click.option("--report-to", type=int, hidden=True, help="descriptor of the `up` that started this in the background")
@pass_session
def up(
    session: Session, /, data: Path, foreground: bool, no_current: bool, report_to: int | None, **flags: Any
) -> None:
    """Start the cluster, make it the current one; returns when it is ready. Does nothing to one that is up."""
    os.umask(private_folder.UMASK)
    try:
        if foreground:
            _stay(session, data, no_current, Channel(report_to) if report_to is not None else None, flags)
        if not _runs(data):
            _check(session, data, flags)
        started = background_start.up(data, [*COMMAND, *sys.argv[1:], "--foreground", "--report-to"])
        _tell_up(session, data, no_current, "the cluster is up" if started else "the cluster is up already")
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise LocalError(f"the cluster in {data} did not start: {error.strerror or error}{where}") from error
    if not started and (given := _given(flags)):
        click.echo(f"note: {given} changes nothing while it is up: torchq local down, then up again", err=True)


def _check(session: Session, data: Path, flags: dict[str, Any]) -> None:
    """What would not work is refused before anything is started; what is strange is told."""
    option_checks.folder(data)
    if not _runs(data):
        option_checks.copy(data)
    for note in private_folder.secure(data):
        click.echo(f"note: {note}", err=True)
    if flags["port"]:
        option_checks.port(flags["port"])
    if url := _redis(session, flags):
        option_checks.redis(url, "--redis" if flags["redis"] else session.resolved.sources["redis_url"])
    else:
        stack.redis_server()
    for note in option_checks.beyond_machine(flags["memory"], flags["gpus"]):
        click.echo(f"note: {note}", err=True)


def _redis(session: Session, flags: dict[str, Any]) -> str:
    """The URL of a Redis that the user runs; empty: the cluster has one of its own."""
    if url.has_password(flags["redis"]):
        raise SettingsError(settings.PASSWORD_SHOWN)
    named = session.resolved.sources["redis_url"] != "default"
    return flags["redis"] or (session.settings.redis_url if named else "")


def _given(flags: dict[str, Any]) -> str:
    """The options that say what the cluster should be like, as far as they are on the command line."""
    context = click.get_current_context()
    names = {each.name: each.opts[0] for each in context.command.params}
    given = [name for name in flags if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    return ", ".join(names[name] for name in given)


def _stay(session: Session, data: Path, no_current: bool, channel: Channel | None, flags: dict[str, Any]) -> NoReturn:
    """Be the supervisor, until a stop signal; tell the command that started this in the background, or the user."""
    start_log(session.settings.log_level)
    supervisor.end_with_parent()
    progress, came_up = Progress(), False

    def ready() -> None:
        nonlocal came_up
        came_up = True
        if channel:
            channel.ready()
            return
        progress.done()
        _tell_up(session, data, no_current, "the cluster is up")

    try:
        if channel is None and not _runs(data):
            _check(session, data, flags)
        options = Options(data=data, environment=session.environment(), **{**flags, "redis": _redis(session, flags)})
        code = stack.run(options, (channel or progress).part, ready, output.progress)
        if not came_up:
            raise LocalError("the cluster was stopped while it started; nothing of it was left running")
    except (*SHOWN, OSError) as error:
        progress.broken()
        if channel:
            channel.failed(error)
        raise
    if channel is None and not no_current:
        _let_go(session, data)
    sys.exit(code)


def _tell_up(session: Session, data: Path, no_current: bool, said: str) -> None:
    """Make the cluster the current one; say which cluster commands go to, and what may come next."""
    output.progress(f"{said}; its data and logs are in {data}")
    try:
        if not no_current:
            current_cluster.take(session.environ, data)
        for line in messages.after_up(session.resolved, session.environ, data):
            output.progress(line)
    except LocalError as error:
        click.echo(f"note: {error}", err=True)
    output.progress(NEXT.format(kubeconfig=shlex.quote(str(Files(data).layout.kubeconfig))))


def _let_go(session: Session, data: Path) -> None:
    """A cluster that was stopped is not the current one any more; say which one is."""
    try:
        if current_cluster.give_back(session.environ, data, _runs):
            output.progress(messages.after_down(session.resolved, session.environ))
        else:
            for line in messages.not_here(session.environ, data):
                output.progress(line)
    except LocalError as error:
        click.echo(f"note: {error}", err=True)


def _runs(data: Path) -> bool:
    return stack_state.supervisor_pid(data) is not None


@local.command()
@DATA
@click.option("--keep", is_flag=True, help="let the pods run on; the next `up` goes on with them")
@click.option("--now", is_flag=True, help="kill the pods instead of giving them the time to end that they ask for")
@pass_session
def down(session: Session, data: Path, keep: bool, now: bool) -> None:
    """Stop the cluster and the pods on it; its data stay, and `up` goes on from there.

    Pods are ended as by a node that shuts down: each is sent SIGTERM and has its whole terminationGracePeriodSeconds.
    That is nobody's failure, whatever they exit with: with `up` their jobs go on from their last checkpoint.
    """
    if keep and now:
        raise click.UsageError("--keep and --now exclude each other")
    os.umask(private_folder.UMASK)
    local_down.down(data, keep=keep, now=now)
    _let_go(session, data)


@local.command(hidden=True)
@DATA
@click.option("--now", is_flag=True)
@pass_session
def end_pods(session: Session, data: Path, now: bool) -> None:
    """End the pods that a cluster which does not run has left; started in the background by `down` itself."""
    start_log(session.settings.log_level)
    sys.exit(stack.end_pods(data, now=now, say=output.progress))


@local.command()
@DATA
@click.option("-o", "form", type=click.Choice(["json", "yaml"]), help="print for programs")
@pass_session
def status(session: Session, data: Path, form: str | None) -> None:
    """Show the cluster's processes, and whether torchq's commands go to it; exit code 1 if it is down."""
    pids = stack_state.members(data)
    layout, is_current = Files(data).layout, session.target.data == data
    if form:
        found = {"up": bool(pids), "current": is_current, "kubeconfig": str(layout.kubeconfig), "processes": pids}
        output.show(found, form)
    elif pids:
        click.echo(
            output.columns(("PROCESS", "PID", "LOG"), [(name, pid, _log(data, name)) for name, pid in pids.items()])
        )
        click.echo(f"kubeconfig: {layout.kubeconfig}")
        click.echo(f"torchq's commands go to: {session.cluster_word}{' (this cluster)' * is_current}")
    else:
        click.echo(_not_up(data))
        for line in messages.not_here(session.environ, data):
            click.echo(line)
    sys.exit(0 if pids else 1)


@local.command()
@DATA
def kubeconfig(data: Path) -> None:
    """Print the path of the cluster's kubeconfig: export KUBECONFIG=$(torchq local kubeconfig)."""
    path = Files(data).layout.kubeconfig
    if not path.exists():
        raise LocalError(f"there is no cluster in {data}; start one with: torchq local up")
    click.echo(path)


def _not_up(data: Path) -> str:
    """What there is of a cluster that is not up."""
    ending = remaining_pods.ending(data)
    if pid := stack_state.supervisor_pid(data):
        doing = (
            f"goes down: {remaining_pods.progress(ending, time.time())}" if ending else "is starting, or about to end"
        )
        return f"the cluster {doing} (process {pid}); see {_log(data, 'supervisor')}"
    left = local_down.left_running(data)
    return f"no cluster runs in {data}; " + (left or f"start it with: {target.command('up', data)}")


def _log(data: Path, name: str) -> Path:
    return Files(data).layout.logs("stack" if name == "supervisor" else name)
