"""`torchq run`: runs a command over there, in the present content of this folder.

One rule: what runs is fixed when the command returns or prints the handle; nothing depends on this folder or this
program after that.
"""

from functools import partial
from pathlib import Path
from typing import Any

import click

from coordinator.cli import manifest_files, outlook, submission
from coordinator.cli.jobs import completion
from coordinator.cli.runs import code_summary, following, printed_manifests
from coordinator.cli.session import Session, pass_session
from coordinator.runs import caller_python, project, request, run, variables
from coordinator.runs.errors import InvalidRun
from coordinator.runs.run import PreparedRun

EXAMPLES = """\b
Examples:
  torchq run --nodes 4 --gpus 8 --queue team-a -- torchrun train.py --lr 3e-4
  torchq run --nodes 1..8 --checkpoint-seconds 60 -- torchrun train.py
  torchq run -d --image pytorch/pytorch:2.13.0-cpu -- python -m project.train
  torchq run --secret-env WANDB_API_KEY=wandb/key -- python train.py
"""
_ASSIGNMENT = "NAME=VALUE, as in --env SEED=1"
_SECRET = "NAME=SECRET/KEY, as in --secret-env WANDB_API_KEY=wandb/key"
_LARGEST_ENV_FILE = 1024 * 1024


@click.command(
    name="run",
    epilog=EXAMPLES,
    context_settings={"allow_interspersed_args": False},
    short_help="Run this folder over there.",
)
@click.option("--nodes", metavar="N|MIN..MAX", help="pods, each one node of the job (default: 1); a range: elastic")
@click.option("--gpus", type=int, help="GPUs of each pod")
@click.option("--cpus", metavar="QUANTITY", help="CPUs of each pod, as in 4 or 100m")
@click.option("--memory", metavar="QUANTITY", help="memory of each pod, as in 16Gi; a pod that takes more is killed")
@click.option(
    "--queue",
    shell_complete=completion.queues,
    help="queue of the job (default: the one with the name of the namespace)",
)
@click.option("--name", help="name of the job (default: made from the script's name)")
@click.option("--image", help="image of the pods; needed on Kubernetes, where it brings Python and packages")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="variable of the pods; secrets are refused here")
@click.option("--env-file", "env_files", multiple=True, metavar="FILE", help="file of such lines")
@click.option("--secret-env", multiple=True, metavar="NAME=SECRET/KEY", help="variable with the value of a Secret")
@click.option("--priority", type=int, help="priority within the queue")
@click.option("--retries", type=int, help="restart the pods this often after any failure (default: see docs/runs.md)")
@click.option("--time", metavar="DURATION", help="end the job after this time, as in 2h or 1h30m")
@click.option(
    "--success",
    type=click.Choice(["all", "master"]),
    help="succeed once all pods have ended with 0, or once the Master (rank 0) has (default: all)",
)
@click.option("--autoscale/--no-autoscale", default=None, help="ask for MIN nodes; more only while their room is idle")
@click.option("--checkpoint-seconds", type=int, help="time to save before workers go or restart; 0: not asked")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="files to leave out, as in .torchqignore")
@click.option("--outputs", metavar="CLAIM", help="claim with the files of torchq.output(), on Kubernetes")
@click.option("--in-place", is_flag=True, help="run in the folder itself, not in a copy; one machine only")
@click.option("--replace", is_flag=True, help="delete the job that has this name already")
@click.option("--anyway", is_flag=True, help="submit even a job that can never run as things are")
@click.option("-d", "--detach", is_flag=True, help="print the handle only, and do not follow the job")
@click.option("--dry-run", is_flag=True, help="check only; with -o, print what would be submitted")
@click.option("-o", "form", type=click.Choice(["yaml", "json"]), help="how --dry-run prints the objects")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
@pass_session
def run_command(
    session: Session, /, detach: bool, dry_run: bool, form: str | None, anyway: bool, **options: Any
) -> None:
    """Run a command in a copy of this folder, as it is now: editing it later changes nothing.

    Prints the handle, then follows the job: why it waits, what its pods print, how it ends. Ctrl-C lets go of the job,
    which goes on. The exit code is 0 if the job succeeded, 1 if not, 130 after Ctrl-C.

    Packed are the files that git would take. .torchqignore, with the patterns of .gitignore, leaves out more; what
    looks like a secret is left out, too. Defaults (image, queue, nodes, gpus, exclude) are in [tool.torchq] of
    pyproject.toml.
    """
    if form and not dry_run:
        raise click.UsageError("-o: this option belongs to --dry-run")
    try:
        prepared = _prepare(session, options)
        if prepared.code is not None:
            click.echo(code_summary.format_summary(prepared.code), err=True)
        submit = partial(
            run.dry_run if dry_run else run.start,
            session.cluster,
            prepared,
            check_jobs=outlook.FeasibilityCheck(session),
            anyway=anyway,
            tell=partial(click.echo, err=True),
        )
        try:
            key = submit()
        except run.RunNameTaken as error:
            hint = "give another --name, or delete that job first with --replace"
            raise click.ClickException(f"{error}: {hint}") from error
        if key is None:
            _print_dry_run(session, prepared, form)
            return
        click.echo(key)
        code = 0 if detach else following.follow(session, key)
    except KeyboardInterrupt:
        raise SystemExit(following.LET_GO) from None
    raise SystemExit(code)


def _prepare(session: Session, options: dict[str, Any]) -> PreparedRun:
    folder = submission.folder()
    document = {
        **{name: value for name, value in options.items() if name not in ("env", "env_files", "secret_env", "replace")},
        "command": list(options["command"]),
        "exclude": list(options["exclude"]),
        **_variables(options),
        "if_exists": "replace" if options["replace"] else "fail",
        "folder": folder,
        "namespace": session.namespace,
    }
    if not options["command"]:
        raise click.UsageError("the command is missing, as in: torchq run -- python train.py")
    if options["replace"] and not options["name"]:
        raise click.UsageError("--replace needs --name: a job without one gets a new name each time")
    document = project.with_defaults(document, Path(folder))
    try:
        return run.prepare(
            session.cluster,
            request.parse(document),
            embedded=session.target.data is not None,
            python_folder=caller_python.find_folder(session.environ),
            code_store=session.settings.code_store,
            tell=partial(click.echo, err=True),
        )
    except InvalidRun as error:
        raise _wrong_option(error) from error


def _wrong_option(error: InvalidRun) -> click.UsageError:
    """Return the error about a field as one about the option that gives it."""
    field, _, message = str(error).partition(": ")
    name, _, key = field.partition(".")
    options = {each.name: each.opts[0] for each in run_command.params if isinstance(each, click.Option)}
    option = options.get(name)
    return click.UsageError(f"{' '.join(filter(None, (option, key)))}: {message}" if option else str(error))


def _variables(options: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return the variables of files and options; options come first."""
    found: dict[str, str] = {}
    for path in options["env_files"]:
        found |= variables.parse_file(manifest_files.text(path, _LARGEST_ENV_FILE), path)
    try:
        given = variables.parse_assignments(_places("--env", options["env"]), _ASSIGNMENT)
        secrets = variables.parse_assignments(_places("--secret-env", options["secret_env"]), _SECRET)
    except InvalidRun as error:
        raise click.UsageError(str(error)) from error
    return {"env": found | given, "secret_env": secrets}


def _places(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    return {f"{option} {number}" if len(texts) > 1 else option: text for number, text in enumerate(texts, start=1)}


def _print_dry_run(session: Session, prepared: PreparedRun, form: str | None) -> None:
    if form:
        click.echo(printed_manifests.format_objects([*prepared.objects, prepared.manifest], form))
        return
    click.echo(f"1 valid on {session.cluster_name}, nothing created (dry run)")
