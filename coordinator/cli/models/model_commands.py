"""`torchq model`: the versions of models that jobs have trained.

One rule: only `delete` deletes files, and only after it has asked.
"""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import click

from coordinator.cli import output
from coordinator.cli.models import places
from coordinator.cli.output import TableOptions
from coordinator.cli.session import JobGroup, Session, pass_session
from coordinator.code import largest
from coordinator.query.questions import Document
from coordinator.runs import model_versions
from coordinator.runs.model_versions import NoSuchModel
from coordinator.wording import ages, job_state
from coordinator.wording.columns import TableColumn
from crds import excerpts, timestamps
from crds.api_resources import MODEL_VERSIONS, TORCHJOBS
from crds.model_version import ModelVersion
from kube.api import Manifest

LONGEST_RESULT = 40
SHOWN_DIGEST = len("sha256:") + 8
_WIDTH = 10


@click.group(cls=JobGroup)
def model() -> None:
    """Show and delete trained models. A version is NAME@VERSION; NAME alone is the newest."""


@model.command("list")
@click.argument("name", required=False)
@output.table_options
@pass_session
def list_models(session: Session, name: str | None, listing: TableOptions) -> None:
    """List models, the newest version first. With NAME, those of one model."""
    found = model_versions.read(session.cluster, session.namespace)
    found = model_versions.named(found, name) if name else found
    listing.show(_columns(output.now()), [_document(each) for each in found])
    if not found:
        click.echo("there are no models; a job makes one with: torchq run --model NAME", err=True)


def _columns(now: datetime) -> Sequence[TableColumn]:
    return (
        TableColumn("NAME", lambda each: each["spec"]["modelName"] or "-"),
        TableColumn("VERSION", lambda each: each["spec"]["version"] or each["metadata"]["name"]),
        TableColumn("FILES", lambda each: _or_dash(each["status"]["files"]), lambda each: each["status"]["files"]),
        TableColumn("SIZE", _size, lambda each: each["status"]["bytes"]),
        TableColumn("DIGEST", lambda each: _short(each["status"]["digest"])),
        TableColumn("JOB", lambda each: f"{each['metadata']['namespace']}/{each['spec']['createdBy']}"),
        TableColumn("RESULT", lambda each: excerpts.excerpt(each["status"]["result"], LONGEST_RESULT) or "-"),
        TableColumn("AGE", lambda each: ages.age(_since(each), now), _since),
        TableColumn("CLAIM", lambda each: _or_dash(each["spec"]["claimName"]), wide=True),
        TableColumn("PATH", lambda each: each["spec"]["path"] or "-", wide=True),
    )


def _or_dash(value: object) -> object:
    return "-" if value is None else value


def _size(each: Document) -> str:
    size = each["status"]["bytes"]
    return "-" if size is None else largest.size_text(size)


def _short(digest: str) -> str:
    return f"{digest[:SHOWN_DIGEST]}.." if len(digest) > SHOWN_DIGEST else digest or "-"


def _since(each: Document) -> str | None:
    since: str | None = each["status"]["finishTime"] or each["metadata"]["creationTimestamp"]
    return since


@model.command()
@click.argument("version", metavar="NAME[@VERSION]")
@output.FORM
@pass_session
def show(session: Session, version: str, form: str | None) -> None:
    """Show the origin and place of a version."""
    found = _find(session, version)
    output.show(_document(found), form, lambda _: _text(session, found))


def _document(version: ModelVersion) -> Document:
    """Return a version as an object of the API; columns need the fields that are not set, too."""
    kind = {"apiVersion": MODEL_VERSIONS.api_version, "kind": MODEL_VERSIONS.kind}
    return kind | version.model_dump(mode="json", by_alias=True)


def _text(session: Session, found: ModelVersion) -> str:
    spec, status = found.spec, found.status
    lines = (
        ("Model", found.label),
        ("Job", f"{found.metadata.namespace}/{spec.created_by or '-'} (uid {spec.created_by_uid or 'unknown'})"),
        ("Queue", spec.queue or "-"),
        ("Code", spec.code or "-"),
        ("Image", spec.image or "-"),
        ("Result", status.result or "-"),
        ("Files", "not counted" if status.files is None else f"{status.files}, {largest.size_text(status.bytes or 0)}"),
        ("Digest", _digest(found)),
        ("Finished", timestamps.format_time(status.finish_time) if status.finish_time else "-"),
        ("Place", _place(session, found)),
    )
    return output.facts(lines, _WIDTH)


def _digest(found: ModelVersion) -> str:
    """Return the digest, and what it does not cover."""
    if not found.status.digest:
        return "none: the job has not called torchq.model(), or its files were too large to be hashed unasked"
    others = f", as rank 0 saw them; not what others of {found.spec.nodes} pods wrote later"
    return found.status.digest + (others if found.spec.nodes > 1 else "")


def _place(session: Session, found: ModelVersion) -> str:
    try:
        return places.describe(places.place(found, session.target.data))
    except places.NoPlace as error:
        return f"unknown: {error}"


@model.command()
@click.argument("version", metavar="NAME[@VERSION]")
@output.FORM
@pass_session
def path(session: Session, version: str, form: str | None) -> None:
    """Print where the files of a version are. That is a folder, or on Kubernetes a claim and the path in it."""
    output.show(places.place(_find(session, version), session.target.data), form, places.describe)


@model.command()
@click.argument("version", metavar="NAME@VERSION")
@click.option("--yes", is_flag=True, help="do not ask")
@pass_session
def delete(session: Session, version: str, yes: bool) -> None:
    """Delete a version, after a question. Its record is deleted, and on one machine its files. On Kubernetes the files
    stay, and the command says where. A version that a job reads, or is to read, is not deleted."""
    versions = model_versions.read(session.cluster, session.namespace)
    found = model_versions.named(versions, version)
    if len(found) > 1:
        raise click.UsageError(f"{version} has {len(found)} versions: name one, as in {found[0].label}")
    (chosen,) = found
    data = session.target.data
    sharing = [each.label for each in versions if each is not chosen and _meets(data, chosen, each)]
    folder = "" if sharing or data is None else _folder(chosen, data)
    if not yes:
        click.confirm(f"delete {chosen.label}" + (f" and all files in {folder}" if folder else ""), abort=True)
    if readers := _readers(session, chosen):
        raise NoSuchModel(f"{chosen.label} is read by {', '.join(readers)}: delete it when they have ended")
    metadata = chosen.metadata
    session.cluster.delete(MODEL_VERSIONS, metadata.name, metadata.namespace, uid=metadata.uid)
    click.echo(f"deleted {chosen.label}")
    if folder:
        places.remove(Path(folder))
        click.echo(f"deleted {folder}")
    elif sharing:
        click.echo(f"its files stay: {', '.join(sharing)} has some of them")
    elif data is None:
        click.echo(f"its files stay in {_place(session, chosen)}")


def _meets(data: Path | None, chosen: ModelVersion, other: ModelVersion) -> bool:
    return places.meets(chosen, other.spec.path, other.spec.claim_name, on_machine=data is not None)


def _folder(chosen: ModelVersion, data: Path) -> str:
    """Return the folder of a version on this machine; empty if it has none that torchq may delete."""
    try:
        return str(places.folder(chosen, data))
    except places.NoPlace:
        return ""


def _readers(session: Session, chosen: ModelVersion) -> list[str]:
    """Return the jobs that have not ended and read a version, by its name or by its files."""
    jobs = session.cluster.list(TORCHJOBS, session.namespace).items
    on_machine = session.target.data is not None
    return [
        job_state.display_name(job)
        for job in jobs
        if not job_state.is_finished(job)
        and any(_is_read(chosen, each, on_machine=on_machine) for each in job["spec"].get("modelInputs") or ())
    ]


def _is_read(chosen: ModelVersion, model_input: Manifest, *, on_machine: bool) -> bool:
    """Return whether an entry of spec.modelInputs is a version, or has some of its files."""
    if chosen.label == f"{model_input['modelName']}@{model_input['version']}":
        return True
    return places.meets(chosen, model_input["path"], model_input.get("claimName"), on_machine=on_machine)


def _find(session: Session, text: str) -> ModelVersion:
    return model_versions.named(model_versions.read(session.cluster, session.namespace), text)[0]
