"""Objects of torchq that no process looks after any more, and statuses that other writers have changed.

One rule: pure. No worker and no garbage collection ever comes back to these objects, so only a person can.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from coordinator.doctor.findings import Finding
from crds import labels, owners
from crds.keys import JobKey
from kube.api import Manifest

OWN_MANAGERS = "torchq"
"""How the names begin under which torchq's processes and commands write."""
_STATUS = "f:status"


@dataclass(frozen=True, slots=True)
class CodeMap:
    """A ConfigMap that holds code of jobs."""

    namespace: str
    name: str
    code: str
    """The beginning of the code's digest, which its jobs have as a label, too."""
    owners: frozenset[str]
    """The uids of its owners."""


@dataclass(slots=True)
class Strays:
    """Collects the facts about such objects that one reading of the cluster shows."""

    labelled_pods: dict[str, JobKey] = field(default_factory=dict)
    """By namespace/name, pods with the labels of a job that does not own them."""
    edits: dict[JobKey, tuple[str, ...]] = field(default_factory=dict)
    """What others than torchq have written into the statuses of jobs."""
    code_of_jobs: set[tuple[str, str]] = field(default_factory=set)
    """Namespaces and digests of the code that jobs name."""
    code_maps: list[CodeMap] = field(default_factory=list)
    unread: str = ""
    """Why the code could not be looked for; empty if it could."""

    def note_pod(self, pod: Manifest) -> None:
        """Note a pod that has the labels of a job, and another owner or no owner."""
        metadata = pod["metadata"]
        found = metadata.get("labels") or {}
        uid = found.get(labels.JOB_UID)
        key = JobKey(metadata["namespace"], str(found.get(labels.JOB_NAME, "")), uid) if uid else None
        if key is not None and not owners.job_uid(metadata) and "deletionTimestamp" not in metadata:
            self.labelled_pods[f"{metadata['namespace']}/{metadata['name']}"] = key

    def note_job(self, key: JobKey, job: Manifest) -> None:
        """Note a job's code, and edits of the job's status by hand."""
        metadata = job["metadata"]
        if code := (metadata.get("labels") or {}).get(labels.CODE):
            self.code_of_jobs.add((key.namespace, str(code)))
        if edits := tuple(_edits(metadata.get("managedFields") or ())):
            self.edits[key] = edits

    def note_code(self, config_map: Manifest) -> None:
        """Note a ConfigMap with code."""
        metadata = config_map["metadata"]
        uids = frozenset(str(owner.get("uid")) for owner in metadata.get("ownerReferences") or ())
        code = str(metadata["labels"][labels.CODE])
        if "deletionTimestamp" not in metadata:
            self.code_maps.append(CodeMap(metadata["namespace"], metadata["name"], code, uids))

    def findings(self, jobs: frozenset[JobKey]) -> Iterator[Finding]:
        """Yield the strays, where these jobs exist."""
        uids = {key.uid for key in jobs}
        for name, key in self.labelled_pods.items():
            if key.uid not in uids:
                message = f"has the labels of job {key}, which is gone, and no owner: it takes room for no queue"
                yield Finding("stray-pod", name, message)
        for each in self.code_maps:
            is_used = (each.namespace, each.code) in self.code_of_jobs or each.owners & uids
            if not is_used:
                message = "holds code of `torchq run`, and no job that exists uses it"
                yield Finding("stray-code", f"ConfigMap {each.namespace}/{each.name}", message)
        for key, edits in self.edits.items():
            for edit in edits:
                yield Finding("edited-status", str(key), edit)


def _edits(managed_fields: Iterable[Manifest]) -> Iterator[str]:
    """Yield a sentence for each writer of the status that is not of torchq. The status is one field to the API server,
    so this is the last writer alone: the next write of torchq replaces this writer."""
    for entry in managed_fields:
        manager = str(entry.get("manager"))
        if _STATUS in (entry.get("fieldsV1") or {}) and not manager.startswith(OWN_MANAGERS):
            yield f"{manager} has written its status at {entry.get('time')}, and torchq has not since"
