"""`torchq local`: a whole cluster on one machine with one command.

One rule: each data folder is one cluster.
"""

import os
import shlex
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import click
from click.core import ParameterSource

from coordinator import release, settings
from coordinator.cli import lazy_group, output
from coordinator.cli.lazy_group import USER_ERRORS
from coordinator.cli.output import Command
from coordinator.cli.session import Session, pass_session, start_log
from coordinator.code.largest import size_text
from coordinator.errors import LocalError, SettingsError
from coordinator.follow import endings
from coordinator.local import (
    background_start,
    current_cluster,
    job_files,
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
from coordinator.local import down as local_down
from coordinator.local.background_start import Channel, ProgressPrinter
from coordinator.local.stack import StackOptions
from coordinator.local.stack_state import Files
from coordinator.runs.document_fields import parse_duration
from crds.api_resources import MODEL_VERSIONS, TORCHJOBS
from kube import client
from kube.settings import ConnectionSettings
from queues.redis import url

HISTORY = "coordinator.cli.history.sources:recorded_until"
"""How far the history is recorded; no other command here waits for the library of its database."""


class DataFolder(click.Path):
    """The type of an option that names a folder; the value becomes an absolute path.

    An empty text, as of an unset variable, is an error and does not mean the current folder.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the absolute path, as click.Path.convert does."""
        if value == "":
            self.fail("the value is empty; name a folder", param, ctx)
        try:
            return Path(os.fsdecode(super().convert(value, param, ctx))).absolute()
        except FileNotFoundError:
            self.fail("the current folder no longer exists; name an absolute path", param, ctx)


DATA = click.option(
    "--data",
    type=DataFolder(path_type=Path, file_okay=False),
    default=user_folders.default_data,
    show_default="~/.local/state/torchq",
    help="data folder of the cluster",
)
COMMAND = (*release.MODULE, "coordinator.cli.main")
NEXT = """kubectl: export KUBECONFIG={kubeconfig}
run: torchq run -- COMMAND
look: torchq dashboard"""


def _checked_option(*names: str, check: Callable[[str], str], **attributes: Any) -> Callable[[Command], Command]:
    """Return an option that `check` validates. The option may be omitted, but not be empty."""

    def callback(context: click.Context, parameter: click.Parameter, text: str) -> str:
        if not text and context.get_parameter_source(str(parameter.name)) is not ParameterSource.COMMANDLINE:
            return text
        try:
            return check(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    return click.option(*names, callback=callback, **attributes)


@click.group()
def local() -> None:
    """Run a whole cluster on this machine. It has an API server, Redis, a node, coordinator, workers and recorder."""


@local.command()
@DATA
@_checked_option("--cpus", check=option_checks.cpus, default="", help="CPUs of the node (default: this machine's)")
@_checked_option(
    "--memory", check=option_checks.memory, default="", help="memory of the node, e.g. 64Gi (default: this machine's)"
)
@_checked_option("--gpus", check=option_checks.gpus, default="", help="GPUs of the node (default: this machine's)")
@_checked_option(
    "--container-log-max-size",
    "log_size",
    check=stack.check_log_size,
    default="64Mi",
    show_default=True,
    help="largest output kept per container, all its log files together",
)
@click.option("--workers", default=2, show_default=True, type=click.IntRange(1, 256), help="worker processes")
@click.option(
    "--port", default=0, type=click.IntRange(0, 65_535), help="port of the API server (default: any free one)"
)
@click.option("--redis", default="", help="URL of a running Redis (default: the cluster starts its own)")
@click.option("--foreground", is_flag=True, help="stay in the foreground until Ctrl-C")
@click.option("--no-current", is_flag=True, help="do not make this cluster the current one")
@click.option(
    "--report-to", type=int, hidden=True, help="file descriptor for events to the `up` that started this process"
)
@pass_session
def up(
    session: Session, /, data: Path, foreground: bool, no_current: bool, report_to: int | None, **flags: Any
) -> None:
    """Start the cluster and make it current. Returns when the cluster is ready; a running cluster is not changed.

    All settings that `torchq config` lists apply: give them as variables (TORCHQ_COST=nvidia.com/gpu torchq local up),
    or in a file (torchq --config settings.toml local up).
    """
    os.umask(private_folder.UMASK)
    try:
        if foreground:
            _run_foreground(session, data, no_current, Channel(report_to) if report_to is not None else None, flags)
        if not _runs(data):
            _check(session, data, flags)
        started = background_start.up(data, [*COMMAND, *sys.argv[1:], "--foreground", "--report-to"])
        _announce_up(session, data, no_current, "the cluster is up" if started else "the cluster is up already")
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise LocalError(f"the cluster in {data} did not start: {error.strerror or error}{where}") from error
    if not started and (ignored := _explicit_options(flags)):
        click.echo(f"note: {ignored} has no effect on a running cluster: torchq local down, then up again", err=True)


def _check(session: Session, data: Path, flags: dict[str, Any]) -> None:
    """Check folder, port and Redis before anything is started, and print notes on doubtful values."""
    option_checks.folder(data)
    option_checks.copy(data)
    for note in private_folder.secure(data):
        click.echo(f"note: {note}", err=True)
    if flags["port"]:
        option_checks.port(flags["port"])
    if url := _redis(session, flags):
        option_checks.redis(url, "--redis" if flags["redis"] else session.resolved_settings.sources["redis_url"])
    else:
        stack.redis_server()
    for note in option_checks.beyond_machine(flags["memory"], flags["gpus"]):
        click.echo(f"note: {note}", err=True)


def _redis(session: Session, flags: dict[str, Any]) -> str:
    """Return the URL of the user's own Redis; empty if the cluster starts its own."""
    if url.has_password(flags["redis"]):
        raise SettingsError(settings.PASSWORD_ON_COMMAND_LINE)
    is_named = session.resolved_settings.sources["redis_url"] != "default"
    return flags["redis"] or (session.settings.redis.url() if is_named else "")


def _explicit_options(flags: dict[str, Any]) -> str:
    """Return the names of the options on the command line that configure the cluster."""
    context = click.get_current_context()
    names = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    given_names = [name for name in flags if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    return ", ".join(names[name] for name in given_names)


def _run_foreground(
    session: Session, data: Path, no_current: bool, channel: Channel | None, flags: dict[str, Any]
) -> NoReturn:
    """Run the supervisor until a stop signal. Progress goes to the command that started this process in the background,
    else to the user."""
    start_log(session.settings)
    supervisor.end_with_parent()
    progress, came_up = ProgressPrinter(), False

    def ready() -> None:
        nonlocal came_up
        came_up = True
        if channel:
            channel.ready()
            return
        progress.done()
        _announce_up(session, data, no_current, "the cluster is up")

    try:
        if channel is None and not _runs(data):
            _check(session, data, flags)
        redis_file = "" if flags["redis"] else session.settings.redis_url_file
        options = StackOptions(
            data=data,
            environment=session.environment(),
            redis_file=redis_file and str(Path(redis_file).absolute()),
            **{**flags, "redis": _redis(session, flags)},
        )
        code = stack.run(options, (channel or progress).part, ready, local_down.print_line)
        if not came_up:
            raise LocalError("the cluster was stopped while it started; none of its processes runs")
    except (*USER_ERRORS, OSError) as error:
        progress.abort()
        if channel:
            channel.report_failure(error)
        raise
    if channel is None and not no_current:
        _announce_down(session, data)
    sys.exit(code)


def _announce_up(session: Session, data: Path, no_current: bool, headline: str) -> None:
    """Make the cluster current. Print which cluster commands use, and the commands to try next."""
    local_down.print_line(f"{headline}; its data and logs are in {data}")
    try:
        if not no_current:
            current_cluster.make_current(session.environ, data)
        for line in messages.after_up(session.resolved_settings, session.environ, data):
            local_down.print_line(line)
    except LocalError as error:
        click.echo(f"note: {error}", err=True)
    local_down.print_line(NEXT.format(kubeconfig=shlex.quote(str(Files(data).layout.kubeconfig))))


def _announce_down(session: Session, data: Path) -> None:
    """Remove a stopped cluster from the current ones, and print which cluster is current now."""
    try:
        if current_cluster.remove(session.environ, data, _runs):
            local_down.print_line(messages.after_down(session.resolved_settings, session.environ, data))
        else:
            for line in messages.not_here(session.environ, data):
                local_down.print_line(line)
    except LocalError as error:
        click.echo(f"note: {error}", err=True)


def _runs(data: Path) -> bool:
    return stack_state.supervisor_pid(data) is not None


@local.command()
@DATA
@click.option("--keep", is_flag=True, help="leave the pods running; the next `up` takes them over")
@click.option("--now", is_flag=True, help="kill the pods at once, without their termination grace period")
@pass_session
def down(session: Session, data: Path, keep: bool, now: bool) -> None:
    """Stop the cluster and its pods. Its data stay, and `up` continues from them.

    Pods end as on a node that shuts down: each gets SIGTERM and has its whole terminationGracePeriodSeconds. No exit
    code of theirs counts as a failure: after the next `up`, their jobs continue from their last checkpoint.
    """
    if keep and now:
        raise click.UsageError("--keep and --now exclude each other")
    os.umask(private_folder.UMASK)
    local_down.down(data, keep=keep, now=now)
    _announce_down(session, data)


@local.command(hidden=True)
@DATA
@click.option("--now", is_flag=True)
@pass_session
def end_pods(session: Session, data: Path, now: bool) -> None:
    """End the pods of a cluster that is down. `torchq local down` starts this command in the background."""
    start_log(session.settings)
    sys.exit(stack.end_pods(data, now=now, say=local_down.print_line))


@local.command()
@DATA
@output.FORM
@pass_session
def status(session: Session, data: Path, form: str | None) -> None:
    """Show the processes of the cluster. Also shows which cluster torchq's commands use. Exit code 1: it is down."""
    pids = stack_state.members(data)
    layout, is_current = Files(data).layout, session.target.data == data
    if form:
        document = {"up": bool(pids), "current": is_current, "kubeconfig": str(layout.kubeconfig), "processes": pids}
        document["metrics_url"] = stack_state.metrics_urls(data)
        document["metrics_token_file"] = str(Files(data).metrics_token)
        document["history"] = lazy_group.find(HISTORY)(session, data)
        document["bytes"] = {name: job_files.measure(root) for name, root in _job_files(data).items()}
        output.print_document(document, form)
    elif pids:
        rows = [(name, pid, _log(data, name)) for name, pid in pids.items()]
        click.echo(output.columns(("PROCESS", "PID", "LOG"), rows))
        click.echo(f"kubeconfig: {layout.kubeconfig}")
        click.echo(f"torchq's commands go to: {session.cluster_name}{' (this cluster)' * is_current}")
        sizes = (f"{name} {size_text(job_files.measure(root))}" for name, root in _job_files(data).items())
        click.echo(f"files of jobs: {', '.join(sizes)} (torchq local prune)")
        click.echo(f"history: {lazy_group.find(HISTORY)(session, data)}")
    else:
        click.echo(_not_up(data))
        for line in messages.not_here(session.environ, data):
            click.echo(line)
    sys.exit(0 if pids else 1)


@local.command()
@DATA
@click.option("--older", required=True, metavar="AGE", help="only what nothing was written to for so long, as in 30d")
@click.option("--yes", is_flag=True, help="remove it; without this option the command only says what it would remove")
def prune(data: Path, older: str, yes: bool) -> None:
    """Remove old outputs and kept logs of jobs. Those of jobs that have not finished stay, and outputs with a model
    that has a version or that such a job reads.

    Outputs are what jobs wrote into the folder of TORCHQ_OUTPUT, and outlive their jobs. Kept logs are those of pods
    that are gone.
    """
    try:
        before = time.time() - parse_duration(older)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--older") from error
    if not _runs(data):
        raise LocalError(f"{_not_up(data)}; while it is down, nobody knows which jobs have not finished")
    with closing(client.connect(ConnectionSettings(kubeconfig=str(Files(data).layout.kubeconfig)))) as cluster:
        jobs, models = cluster.list(TORCHJOBS).items, cluster.list(MODEL_VERSIONS).items
    unfinished = [job for job in jobs if not endings.is_finished(job)]
    uids = [str(job["metadata"]["uid"]) for job in unfinished]
    read = [str(each["path"]) for job in unfinished for each in job["spec"].get("modelInputs") or ()]
    recorded = [str((item.get("spec") or {}).get("path") or "") for item in models]
    found = job_files.find_old(_job_files(data).values(), before, uids, [*recorded, *read])
    for folder in found:
        click.echo(f"{size_text(folder.size):>10}  {folder.path}")
        if yes:
            job_files.remove(folder)
    what = f"{len(found)} folder{'s' * (len(found) != 1)}, {size_text(sum(folder.size for folder in found))}"
    click.echo(f"{what}: removed" if yes else f"{what}: nothing was removed; --yes removes them")


def _job_files(data: Path) -> dict[str, Path]:
    layout = Files(data).layout
    return {"outputs": layout.outputs, "logs": layout.job_logs}


@local.command()
@DATA
def kubeconfig(data: Path) -> None:
    """Print the path of the cluster's kubeconfig. For example: export KUBECONFIG=$(torchq local kubeconfig)"""
    path = Files(data).layout.kubeconfig
    if not path.exists():
        raise LocalError(f"there is no cluster in {data}; start one with: torchq local up")
    click.echo(path)


def _not_up(data: Path) -> str:
    """Describe a cluster that is not up: it starts, it ends, or pods of it still run."""
    ending = remaining_pods.ending(data)
    if pid := stack_state.supervisor_pid(data):
        down = f"is going down: {remaining_pods.format_progress(ending, time.time())}" if ending else ""
        doing = down or "is starting or stopping"
        return f"the cluster {doing} (process {pid}); see {_log(data, 'supervisor')}"
    remaining = local_down.describe_remaining_pods(data)
    return f"no cluster runs in {data}; " + (remaining or f"start it with: {target.command('up', data)}")


def _log(data: Path, name: str) -> Path:
    return Files(data).layout.logs("stack" if name == "supervisor" else name)
