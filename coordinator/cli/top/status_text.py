"""The health of the whole system as text, for `torchq status` and `torchq top`."""

from coordinator.cli import output
from coordinator.query.questions import Document
from coordinator.wording import system_health

LABEL = 14


def format_status(document: Document) -> str:
    """Format the health of the system, one line per part."""
    return output.facts(system_health.facts(document), LABEL)
