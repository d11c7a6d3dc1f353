"""The workers that an admitted job waits for, beside those that it has.

One rule: the object says how many there are, and a coordinator says why they wait. If none answers, the text says so.
"""

from coordinator.cli import api_client, job_ref
from coordinator.cli.session import USER_ERRORS, Session
from coordinator.query.documents import Document
from kube.api import Manifest


def read(session: Session, item: Manifest) -> Document:
    """Return how many workers a job has and wants, and why the rest waits; empty if it waits for none."""
    counts = counts_of(item)
    if counts["wanted"] <= counts["granted"]:
        return {}
    try:
        answer = api_client.find(session).job(job_ref.key(item))
    except USER_ERRORS as error:
        return {**counts, "code": "Unknown", "message": str(error)}
    reason = answer.get("rest") or answer.get("growth") or {"code": "New", "message": "no request is known yet"}
    return {**reason, **counts}


def counts_of(item: Manifest) -> dict[str, int]:
    """Return how many workers an admitted job has, and how many it wants and has asked for."""
    status = item.get("status") or {}
    granted = (status.get("admission") or {}).get("workers") or 0
    scaling = status.get("scaling") or {}
    is_growing = bool(granted and not scaling.get("victims")) and not job_ref.is_finished(item)
    return {"granted": granted, "wanted": max(granted, scaling.get("to") or 0) if is_growing else granted}


def format_rest(rest: Document) -> str:
    """Format how many workers a job has, and why the rest waits."""
    more = rest["wanted"] - rest["granted"]
    reason = "; ".join(filter(None, (rest["message"], rest.get("numbers"))))
    waits = f"{more} more wait{'s' if more == 1 else ''}: {rest['code']}"
    return f"{rest['granted']} of {rest['wanted']} workers; {waits} ({reason})"
