"""Why a job waits, as commands that follow a job say it.

One rule: it is best effort. Without a coordinator the reason comes from the status of the job alone.
"""

from coordinator.cli import api_client, job_ref
from coordinator.cli.session import USER_ERRORS, Session
from coordinator.follow import wait_reasons
from kube.api import Manifest


def explain(session: Session, item: Manifest) -> str:
    """Return why a job waits, and its place in its queue where a coordinator tells it."""
    item = without_hold(item)
    reason = wait_reasons.explain(item)
    try:
        place = api_client.find(session).job(job_ref.key(item))
    except USER_ERRORS:
        return reason
    if place.get("state") == "admitted":
        return "a worker is about to start it"  # the status, from which the reason comes, is older
    if place.get("state") != "waiting":
        return reason
    if not (item.get("status") or {}).get("queue") and place.get("message") and place["code"] != "New":
        reason = f"{place['message']} ({place['code']})"
    return f"{reason}, number {place['position']} of {place['of']}"


def without_hold(item: Manifest) -> Manifest:
    """Return a job without the reason Held, which its status may have for a moment after it was let go."""
    status = item.get("status") or {}
    is_held = (item["spec"].get("schedulingPolicy") or {}).get("hold")
    if is_held or (status.get("queue") or {}).get("reason") != "Held":
        return item
    queue = {name: value for name, value in status["queue"].items() if name not in ("reason", "message")}
    return {**item, "status": {**status, "queue": queue}}
