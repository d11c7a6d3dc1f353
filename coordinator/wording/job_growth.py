"""The number of workers of an admitted job, and the workers for which the job still waits.

One rule: the number of workers comes from the object, and the reason for which workers wait comes from a coordinator.
"""

from coordinator.query.questions import Document
from coordinator.wording import job_state
from crds.torchjob.status import IDLE
from crds.torchjob.tasks import WORKER
from kube.api import Manifest


def counts_of(item: Manifest) -> dict[str, int]:
    """Return how many workers an admitted job has, and how many it wants and has asked for."""
    status = item.get("status") or {}
    granted = (status.get("admission") or {}).get("workers") or 0
    scaling = status.get("scaling") or {}
    is_growing = bool(granted and not scaling.get("victims")) and not job_state.is_finished(item)
    return {"granted": granted, "wanted": max(granted, scaling.get("to") or 0) if is_growing else granted}


def size_of(item: Manifest) -> Document:
    """Return the size of an admitted job that the coordinator may resize: the number of its workers, the number that
    its owner wants, and its bounds; empty for any other job.
    """
    status, policy = item.get("status") or {}, item["spec"].get("torchElasticPolicy") or {}
    admission, worker = status.get("admission") or {}, item["spec"]["torchTaskSpecs"]
    target: Document = status.get("target") or {}
    granted, idle = admission.get("workers"), admission.get("idle", 0)
    concerned = policy.get("autoscale") == "Idle" or idle or target
    if not (granted and concerned and WORKER in worker) or job_state.is_finished(item):
        return {}
    wanted = worker[WORKER].get("numTasks", 1)
    since = target["since"] if target.get("reason") == IDLE else (status.get("resized") or {}).get("at")
    return {
        "workers": granted,
        "wanted": wanted,
        "idle": idle,
        "idleSince": since if idle else None,
        "min": policy.get("numMinReplicas") or wanted,
        "max": policy.get("numMaxReplicas") or wanted,
        "target": target if target.get("workers", granted) != granted else None,
    }


def format_size(size: Document) -> str:
    """Format the size of a job, as in `6 workers: 4 wanted, 2 idle growth since ...; min 2, max 8`."""
    parts = [f"{size['wanted']} wanted"]
    if size["idle"]:
        since = f" since {size['idleSince']}" if size["idleSince"] else ""
        parts.append(f"{size['idle']} idle growth{since}")
    text = f"{size['workers']} workers: {', '.join(parts)}; min {size['min']}, max {size['max']}"
    target = size["target"]
    return text + (f"; to become {target['workers']}: {target.get('message') or target['reason']}" if target else "")


def format_rest(rest: Document) -> str:
    """Format how many workers a job has, and why the rest waits."""
    more = rest["wanted"] - rest["granted"]
    reason = "; ".join(filter(None, (rest["message"], rest.get("numbers"))))
    waits = f"{more} more wait{'s' if more == 1 else ''}: {rest['code']}"
    return f"{rest['granted']} of {rest['wanted']} workers; {waits} ({reason})"
