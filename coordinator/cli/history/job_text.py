"""The text of `torchq history JOB`."""

from datetime import tzinfo

from coordinator.cli import output
from coordinator.query.questions import Document
from coordinator.wording import history_columns

_WIDTH = 11


def job_text(job: Document, zone: tzinfo) -> str:
    """Format one job with its holds."""
    parts = [output.facts(history_columns.job_facts(job, zone), _WIDTH)]
    if job["holds"]:
        parts += ["", output.table(history_columns.holds(job, zone))]
    if job["pods"]:
        parts += ["", history_columns.later_pods_title(job), output.table(history_columns.later_pods(job, zone))]
    if others := history_columns.other_jobs(job, zone):
        parts += ["", *others]
    return "\n".join(parts)
