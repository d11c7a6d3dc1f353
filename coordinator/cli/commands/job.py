"""`torchq submit` and `torchq job show`: from a file to a finished job, from the user's side.

One rule: the client only requests. Once the handle is printed, the job is in the cluster and needs the client no more.
"""

from collections.abc import Iterable, Iterator
from functools import partial

import click

from coordinator import terminal
from coordinator.cli import output, submission
from coordinator.cli.jobs import selected
from coordinator.cli.jobs.making import JobMaker
from coordinator.cli.jobs.selected import JobChoice
from coordinator.cli.manifest_files import BadManifest
from coordinator.cli.session import Session, pass_session, with_namespace
from coordinator.cli.session_reader import SessionReader
from coordinator.query.questions import Document
from coordinator.wording import job_answers, job_facts
from kube.api import Manifest

LABEL = 12


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--dry-run", is_flag=True, help="validate only, create nothing")
@click.option(
    "--anyway", is_flag=True, help="submit even jobs that can never run with the present queues, quotas and nodes"
)
@click.option("--replace", is_flag=True, help="delete jobs that have the same names first")
@pass_session
def submit(session: Session, files: tuple[str, ...], dry_run: bool, anyway: bool, replace: bool) -> None:
    """Submit TorchJobs from YAML files. All jobs are submitted or none; FILE `-` is standard input.

    Prints namespace/name/uid of each job as it is made. If not all can be made, or after Ctrl-C, those that were made
    are deleted again. A job that can never run is refused: it requests more than its queue or this machine can ever
    provide, names a queue or a PriorityClass that does not exist, or uses a feature that the embedded cluster does not
    have.

    \b
    A file with metadata.generateName instead of metadata.name can be submitted again and again:
      metadata: {generateName: train-}
    """
    documents = submission.read(files, session.namespace, submission.folder())
    if not documents:
        raise BadManifest(f"{', '.join(files)}: the file contains no TorchJob")
    vetting = submission.vetting(session, anyway=anyway, tell=partial(click.echo, err=True))
    submission.submit(
        session.cluster,
        documents,
        vetting,
        dry_run=dry_run,
        embedded=session.is_embedded,
        maker=JobMaker(session.cluster, click.echo, replace=replace, tell=vetting.tell),
    )
    if dry_run:
        click.echo(f"{len(documents)} valid on {session.cluster_name}, nothing created (dry run)")
    else:
        # Programs read standard output, so it has the handles alone.
        click.echo(f"{len(documents)} submitted on {session.cluster_name}", err=True)


with_namespace(submit)


@click.command()
@selected.jobs_argument
@click.option("-o", "form", type=click.Choice(["json", "yaml", "wide"]), help="the whole object, or more columns")
@pass_session
def show(session: Session, jobs: JobChoice, form: str | None) -> None:
    """Show jobs in detail. The output has the state, the reason why a task is short of pods, restarts, conditions,
    pods and the last events."""
    jobs.for_each(session, lambda item: _show(session, item, form))


def _show(session: Session, item: Manifest, form: str | None) -> None:
    reader, embedded = SessionReader(session), session.is_embedded
    context, document = job_answers.read_details(reader, item, output.now(), embedded=embedded)
    if form in ("json", "yaml"):
        output.print_document({**item, "details": document}, form)
    else:
        click.echo(format_job(item, document, context.pods, wide=form == "wide"))


def format_job(item: Manifest, document: Document, pods: Iterable[Manifest], *, wide: bool = False) -> str:
    """Format everything about a job, in paragraphs; with `wide`, ranks of pods and labels of their nodes, too."""
    notes = map(terminal.one_line, document["notes"])
    facts = output.facts(job_facts.facts(item, document), LABEL)
    return "\n\n".join(filter(None, [facts, *_tables(item, document, pods, wide), *notes]))


def _tables(item: Manifest, document: Document, pods: Iterable[Manifest], wide: bool) -> Iterator[str]:
    yield output.table(job_facts.tasks(document))
    yield output.table(job_facts.workloads(document))
    yield "\n".join(job_facts.blockers(document))
    yield output.table(job_facts.conditions(item))
    yield output.table(job_facts.pods(pods, wide=wide))
    yield output.table(job_facts.events(document))
