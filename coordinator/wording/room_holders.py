"""The jobs that hold the room that a job waits for, in words."""

from coordinator.query.questions import ANOTHER, Document
from coordinator.wording import amounts


def format_holders(answer: Document) -> str:
    """Return the holders of room in one line; empty if none are known."""
    parts = [_format(each) for each in answer.get("holders") or ()]
    if more := answer.get("otherHolders"):
        parts.append(f"{more} other{'' if more == 1 else 's'}")
    *first, last = parts or [""]
    return f"{', '.join(first)} and {last}" if first else last


def _format(holder: Document) -> str:
    name = f"job {holder['job']}" if holder["uid"] else ANOTHER
    queue = f" of queue {holder['queue']}" if holder["queue"] else ""
    end = ""
    if holder.get("ending"):
        until = f"its pods end by {holder['until']}" if holder["until"] else "its pods are still to end"
        end = f"; {holder['ending']}, {until}"
    return f"{name}{queue} ({amounts.format_amounts(holder['charge'])}{end})"
