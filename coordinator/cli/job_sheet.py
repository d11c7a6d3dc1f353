"""The text of `torchq job show`."""

from collections.abc import Iterable, Iterator

from coordinator import terminal
from coordinator.cli import output
from coordinator.query.questions import Document
from coordinator.wording import job_facts
from kube.api import Manifest

LABEL = 12


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
