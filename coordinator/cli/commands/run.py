"""`torchq run`: runs a command over there, in the present content of this folder.

One rule: what runs is fixed when the command returns or prints the handle; nothing depends on this folder or this
program after that.
"""

from functools import partial
from pathlib import Path
from typing import Any

import click
import yaml

from coordinator.cli import manifest_files, output, submission
from coordinator.cli.jobs import completion, followed_output
from coordinator.cli.session import Session, pass_session
from coordinator.code import ignore_rules
from coordinator.code.errors import FolderRefused
from coordinator.code.ignore_rules import PatternLine
from coordinator.runs import caller_python, project, request, run, variables
from coordinator.runs.errors import InvalidRun
from coordinator.runs.run import PreparedRun
from kube.api import Manifest

EXAMPLES = """\b
Examples:
  torchq run --nodes 4 --gpus 8 --queue team-a -- torchrun train.py --lr 3e-4
  torchq run --nodes 1..8 --checkpoint-seconds 60 -- torchrun train.py
  torchq run -d --image pytorch/pytorch:2.13.0-cpu -- python -m project.train
  torchq run --secret-env WANDB_API_KEY=wandb/key -- python train.py
"""
# The C version of the library: a job with its code may have megabytes.
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
LONGEST_REPEATED = 1_000
"""The most characters of a text that is written again, as the program that unpacks the code is not."""
_ASSIGNMENT = "NAME=VALUE, as in --env SEED=1"
_SECRET = "NAME=SECRET/KEY, as in --secret-env WANDB_API_KEY=wandb/key"
_LARGEST_ENV_FILE = 1024 * 1024
_ENV_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True)


def _check_patterns(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    try:
        ignore_rules.parse(PatternLine(value, "--exclude") for value in values)
    except FolderRefused as error:
        raise click.UsageError(str(error)) from error
    return values


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
@click.option("--env-file", "env_files", multiple=True, metavar="FILE", type=_ENV_FILE, help="file of such lines")
@click.option("--secret-env", multiple=True, metavar="NAME=SECRET/KEY", help="variable with the value of a Secret")
@click.option("--priority", type=int, help="priority within the queue")
@click.option("--retries", type=int, help="restart the pods this often after any failure (default: see docs/runs.md)")
@click.option("--time", metavar="DURATION", help="end the job after this time, as in 2h or 1h30m")
@click.option("--grace", metavar="DURATION", help="time to save and end after SIGTERM, as in 90s (default: 30s)")
@click.option(
    "--success",
    type=click.Choice(["all", "master"]),
    help="succeed once all pods have ended with 0, or once the Master (rank 0) has (default: all)",
)
@click.option("--autoscale/--no-autoscale", default=None, help="ask for MIN nodes; more only while their room is idle")
@click.option("--checkpoint-seconds", type=int, help="time to save before workers go or restart; 0: not asked")
@click.option(
    "--exclude",
    multiple=True,
    metavar="PATTERN",
    callback=_check_patterns,
    help="files to leave out, as in .torchqignore",
)
@click.option("--outputs", metavar="CLAIM", help="claim with the files of torchq.output(), on Kubernetes")
@click.option("--model", metavar="NAME", help="model that the job trains, in torchq.model()")
@click.option(
    "--with-model",
    "with_models",
    multiple=True,
    metavar="NAME[@VERSION]",
    help="model that the job reads: the newest version as of now, or that version",
)
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
    looks like a secret is left out, too. Defaults (image, queue, nodes, gpus, grace, exclude) are in [tool.torchq] of
    pyproject.toml.
    """
    if form and not dry_run:
        raise click.UsageError("-o: this option belongs to --dry-run")
    prepared = _prepare(session, options)
    if prepared.code is not None:
        click.echo(prepared.code.describe(), err=True)
        if warning := prepared.code.warning():
            click.echo(f"note: {warning}", err=True)
    submit = run.dry_run if dry_run else run.start
    vetting = submission.vetting(session, anyway=anyway, tell=partial(click.echo, err=True))
    try:
        key = submit(session.cluster, prepared, vetting)
    except run.RunNameTaken as error:
        hint = "give another --name, or delete that job first with --replace"
        raise click.ClickException(f"{error}: {hint}") from error
    if key is None:
        valid = f"1 valid on {session.cluster_name}, nothing created (dry run)"
        click.echo(format_objects([*prepared.objects, prepared.manifest], form) if form else valid)
        return
    click.echo(key)
    raise SystemExit(0 if detach else followed_output.follow_to_end(session, key))


def _prepare(session: Session, options: dict[str, Any]) -> PreparedRun:
    folder = submission.folder()
    document = {
        **{name: value for name, value in options.items() if name not in ("env", "env_files", "secret_env", "replace")},
        "command": list(options["command"]),
        "exclude": list(options["exclude"]),
        "with_models": list(options["with_models"]),
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
            embedded=session.is_embedded,
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
    try:
        for path in options["env_files"]:
            parsed = variables.parse_file(manifest_files.text(path, _LARGEST_ENV_FILE), path)
            found |= parsed.variables
            for note in parsed.notes:
                click.echo(f"note: {note}", err=True)
        given = variables.parse_assignments(_places("--env", options["env"]), _ASSIGNMENT)
        secrets = variables.parse_assignments(_places("--secret-env", options["secret_env"]), _SECRET)
    except InvalidRun as error:
        raise click.UsageError(str(error)) from error
    return {"env": found | given, "secret_env": secrets}


def _places(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    return {f"{option} {number}" if len(texts) > 1 else option: text for number, text in enumerate(texts, start=1)}


class _Dumper(_DUMPER):  # type: ignore[misc, valid-type]
    """Writes texts of several lines, as programs are, as they are read. A long text that comes again is a reference to
    its first place; every other value is written in full."""

    def ignore_aliases(self, data: object) -> bool:
        return not (isinstance(data, str) and len(data) > LONGEST_REPEATED)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def format_objects(objects: list[Manifest], form: str) -> str:
    """Return the objects of a run as YAML documents, or as a list in JSON: submitted again, they give the same run."""
    if form == "json":
        items = {"apiVersion": "v1", "kind": "List", "items": objects}
        return output.json_text(items, indent=True)
    return "---\n".join(yaml.dump(each, Dumper=_Dumper, sort_keys=False, width=2**31 - 1) for each in objects).rstrip()
