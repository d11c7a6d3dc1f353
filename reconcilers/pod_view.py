"""A pod as a reconcile sees it: under 1 KB, made once at the informer's door.

One rule: nothing beyond this module reads a pod's manifest.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cluster.api import Manifest
from crds import labels
from reconcilers import containers

FINISHED = ("Succeeded", "Failed")
LONGEST_MESSAGE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """One pod of a TorchJob."""

    namespace: str
    name: str
    uid: str
    job_uid: str
    task: str
    """The task type in lower case, as in the pod's name."""
    index: int
    attempt: int
    """The admission it belongs to."""
    restart: int
    """The job's restart generation that it belongs to."""
    phase: str = "Pending"
    reason: str = ""
    """Why it is in this phase: the pod's reason, else its failed container's."""
    message: str = ""
    """The last thing it said, one line."""
    exit_code: int | None = None
    """Of the main container, or of the one that failed before or beside it; None if nobody knows."""
    deleting: bool = False
    gated: bool = False
    """Whether it has a start gate that nobody has opened yet."""
    ready: bool = False
    node: str = ""
    started: str = ""
    """RFC 3339, empty before."""
    version: int = 0
    """Its resourceVersion."""
    service: str = ""
    """The headless service that was made for it."""

    @property
    def running(self) -> bool:
        """Whether it really runs and is to stay."""
        return self.phase == "Running" and not self.deleting

    @property
    def finished(self) -> bool:
        """Whether its containers have ended for good."""
        return self.phase in FINISHED


def occupies(pod: PodView) -> bool:
    """Whether a pod takes room: until it is Succeeded, Failed or gone. A terminating pod occupies."""
    return not pod.finished


def trim(manifest: Manifest) -> PodView:
    """What matters of a pod that carries our labels."""
    metadata, spec, status = manifest["metadata"], manifest["spec"], manifest.get("status") or {}
    marks: Mapping[str, str] = metadata.get("labels") or {}
    ended = _ended(spec, status)
    return PodView(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        job_uid=marks.get(labels.JOB_UID, ""),
        task=marks.get(labels.TASK_TYPE, ""),
        index=_number(marks, labels.TASK_INDEX),
        attempt=_number(marks, labels.ATTEMPT),
        restart=_number(marks, labels.RESTART),
        phase=status.get("phase") or "Pending",
        reason=status.get("reason") or ended.get("reason") or "",
        message=_last_line(ended.get("message") or status.get("message") or ""),
        exit_code=ended.get("exitCode"),
        deleting="deletionTimestamp" in metadata,
        gated=_is_gated(metadata, spec),
        ready=any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or ()),
        node=spec.get("nodeName") or "",
        started=status.get("startTime") or "",
        version=version(manifest),
        service=metadata["name"] if spec.get("subdomain") == metadata["name"] else "",
    )


def _is_gated(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    has = any(each["name"] == containers.GATE for each in spec.get("initContainers") or ())
    return has and not (metadata.get("annotations") or {}).get(labels.START)


def version(manifest: Manifest) -> int:
    """An object's resourceVersion; 0 if the server's are not numbers."""
    text = manifest["metadata"].get("resourceVersion", "")
    return int(text) if text.isascii() and text.isdigit() else 0


def _number(marks: Mapping[str, str], name: str) -> int:
    """A label that is not ours to trust: -1 matches nothing."""
    text = marks.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else -1


def _ended(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Mapping[str, Any]:
    """How the pod's containers ended: the main one's failure, else another one's, else the main one's success."""
    if status.get("phase") not in FINISHED:
        return {}
    main = containers.main(spec)["name"]
    found = sorted(_terminations(status), key=lambda each: each[0] != main)
    failed = (how for _, how in found if how.get("exitCode"))
    return next(failed, next((how for name, how in found if name == main), {}))


def _terminations(status: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for field in ("initContainerStatuses", "containerStatuses"):
        for each in status.get(field) or ():
            terminated = (each.get("state") or {}).get("terminated")
            if terminated:
                yield each["name"], terminated


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip()[:LONGEST_MESSAGE] if lines else ""
