"""The heading of the page of a job: what it does, in one line.

One rule: pure, over the document of `torchq job why`. The sentences below the heading say the rest.
"""

from coordinator.query.questions import Document
from coordinator.wording import job_columns
from kube.api import Manifest

_ENDS = {"Succeeded": "has succeeded", "Failed": "has failed", "Cancelled": "was cancelled"}


def of_job(item: Manifest, why: Document) -> str:
    """Return the heading of a job, as in `digits waits, 3rd of 7 in team-a`."""
    name, state = str(item["metadata"]["name"]), why["state"]
    if state == "deleting":
        return f"{name} is being deleted"
    if state == "finished":
        return f"{name} {_ENDS.get(job_columns.phase(item), 'has ended')}"
    if state == "suspended":
        return f"{name} is suspended"
    if state == "admitted":
        return f"{name} {_admitted(item, why)}"
    if state == "waiting":
        return f"{name} waits, {ordinal(why['position'])} of {why['of']} in {why['queue']}"
    held = {"Held": "is held", "Parked": "is parked"}.get(str(why.get("code")))
    return f"{name} {held or 'waits'} in {why['queue']}"


def _admitted(item: Manifest, why: Document) -> str:
    if not (item.get("status") or {}).get("admission"):
        return "was picked and is about to start"
    if why.get("against"):
        return "holds its room, but does not run"
    if why["phase"] != "Running":
        return "starts"
    return "hangs" if why["code"] == "Hanging" else "runs"


def ordinal(number: int) -> str:
    """Return a number as a place: 1st, 2nd, 3rd, 4th."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
