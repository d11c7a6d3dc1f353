"""`torchq local`: everything on one machine in one command.

One rule: a data folder is a cluster; two of them are two clusters.
"""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click

from coordinator import (
    current,
    folders,
    local_down,
    local_pods,
    local_state,
    local_words,
    output,
    processes,
    settings,
    target,
)
from coordinator import local as stack
from coordinator.errors import LocalError, SettingsError
from coordinator.local import Options
from coordinator.local_state import Files
from coordinator.session import Session, pass_session, start_log
from queues import redis_url
from queues.errors import BadAddress

DATA = click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=folders.default_data,
    show_default="~/.local/state/torchq",
    help="folder of the cluster",
)
UP_SECONDS = 120.0


def _log_size(_: click.Context, __: click.Parameter, text: str) -> str:
    try:
        return stack.checked_log_size(text)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


@click.group()
def local() -> None:
    """Run a whole cluster on this machine: API server, Redis, node, coordinator and workers."""


@local.command()
@DATA
@click.option("--cpus", default="", help="CPUs of the node (default: this machine's)")
@click.option("--memory", default="", help="memory of the node, e.g. 64Gi (default: this machine's)")
@click.option("--gpus", default="", help="GPUs of the node (default: this machine's)")
@click.option(
    "--container-log-max-size",
    "log_size",
    default="64Mi",
    show_default=True,
    callback=_log_size,
    help="output kept of each container, all its log files together",
)
@click.option("--workers", default=2, show_default=True, type=click.IntRange(1, 256), help="worker processes")
@click.option(
    "--port", default=0, type=click.IntRange(0, 65_535), help="port of the API server (default: any free one)"
)
@click.option("--redis", default="", help="URL of a Redis that runs (default: the cluster starts its own)")
@click.option("--foreground", is_flag=True, help="stay, until Ctrl-C")
@click.option("--no-current", is_flag=True, help="leave torchq's commands with the cluster that they go to now")
@click.option("--spawned", is_flag=True, hidden=True, help="started in the background by `up` itself")
@pass_session
def up(session: Session, /, data: Path, foreground: bool, no_current: bool, spawned: bool, **flags: Any) -> None:
    """Start the cluster; returns when it is ready."""
    data = data.absolute()
    if redis_url.has_password(flags["redis"]):
        raise SettingsError(settings.PASSWORD_SHOWN)
    _check_redis(flags["redis"])
    if foreground:
        start_log(session.settings.log_level)
        processes.end_with_parent()
        if not flags["redis"] and session.resolved.sources["redis_url"] != "default":
            flags["redis"] = session.settings.redis_url
        options = Options(data=data, environment=session.environment(), **flags)
        if spawned:
            sys.exit(stack.run(options, say=click.echo))
        code = stack.run(options, ready=lambda: _tell_up(session, data, no_current), say=click.echo)
        if not no_current:
            _let_go(session, data)
        sys.exit(code)
    _spawn(data)
    _tell_up(session, data, no_current)


def _tell_up(session: Session, data: Path, no_current: bool) -> None:
    """Make the cluster the current one, and say which cluster commands go to."""
    click.echo(f"the cluster is up; its data and logs are in {data}")
    try:
        if not no_current:
            current.take(session.environ, data)
        for line in local_words.after_up(session.resolved, session.environ, data):
            click.echo(line)
    except LocalError as error:
        click.echo(f"note: {error}", err=True)
    click.echo(f"export KUBECONFIG={Files(data).layout.kubeconfig}")


def _let_go(session: Session, data: Path) -> None:
    """A cluster that was stopped is not the current one any more; say which one is."""
    try:
        if current.give_back(session.environ, data, _runs):
            click.echo(local_words.after_down(session.resolved, session.environ))
        else:
            for line in local_words.not_here(session.environ, data):
                click.echo(line)
    except LocalError as error:
        click.echo(f"note: {error}", err=True)


def _runs(data: Path) -> bool:
    return local_state.supervisor_pid(data) is not None


def _check_redis(url: str) -> None:
    try:
        if url:
            redis_url.check(url)
    except BadAddress as error:
        raise SettingsError(f"--redis: {error}") from error


def _spawn(data: Path) -> None:
    """Run this very command again, in the foreground of a session of its own."""
    running = local_state.supervisor_pid(data)
    if running:
        raise LocalError(f"the cluster in {data} is up already (process {running})")
    log = Files(data).layout.logs("stack")
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "coordinator.cli", *sys.argv[1:], "--foreground", "--spawned"]
    with log.open("ab") as out:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    deadline = time.monotonic() + UP_SECONDS
    while not local_state.members(data):
        if child.poll() is not None or time.monotonic() > deadline:
            child.send_signal(stack.LEAVE)
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
            raise LocalError(f"the cluster did not start; the end of {log}:\n{tail}")
        time.sleep(0.05)


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
    data = data.absolute()
    local_down.down(data, keep=keep, now=now)
    _let_go(session, data)


@local.command(hidden=True)
@DATA
@click.option("--now", is_flag=True)
@pass_session
def end_pods(session: Session, data: Path, now: bool) -> None:
    """End the pods that a cluster which does not run has left; started in the background by `down` itself."""
    start_log(session.settings.log_level)
    sys.exit(stack.end_pods(data, now=now, say=click.echo))


@local.command()
@DATA
@click.option("-o", "form", type=click.Choice(["json", "yaml"]), help="print for programs")
@pass_session
def status(session: Session, data: Path, form: str | None) -> None:
    """Show the cluster's processes, and whether torchq's commands go to it; exit code 1 if it is down."""
    data = data.absolute()
    pids = local_state.members(data)
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
        for line in local_words.not_here(session.environ, data):
            click.echo(line)
    sys.exit(0 if pids else 1)


@local.command()
@DATA
def kubeconfig(data: Path) -> None:
    """Print the path of the cluster's kubeconfig: export KUBECONFIG=$(torchq local kubeconfig)."""
    path = Files(data.absolute()).layout.kubeconfig
    if not path.exists():
        raise LocalError(f"there is no cluster in {data}; start one with: torchq local up")
    click.echo(path)


def _not_up(data: Path) -> str:
    """What there is of a cluster that is not up."""
    ending = local_pods.ending(data)
    if ending and _runs(data):
        return f"the cluster goes down: {local_pods.progress(ending, time.time())}"
    left = local_down.left_running(data)
    return f"no cluster runs in {data}; " + (left or f"start it with: {target.command('up', data)}")


def _log(data: Path, name: str) -> Path:
    return Files(data).layout.logs("stack" if name == "supervisor" else name)
