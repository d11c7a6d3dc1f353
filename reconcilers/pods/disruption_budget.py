"""The PodDisruptionBudget of a job whose pods may not be evicted.

One rule: pure, and the same for every number of pods. Only a whole number as `minAvailable` works: for `maxUnavailable`
and for percentages the disruption controller asks for the scale of the pods' owner, and the scale of a TorchJob counts
its workers alone, so a Master would be one pod too many. A budget is about the pods of one admission, since the owner
may change the field before the next admission.
"""

from crds import labels
from crds.api_resources import POD_DISRUPTION_BUDGETS
from crds.torchjob.torchjob import TorchJob
from kube.api import Manifest
from reconcilers.values import CreateObject

MORE_THAN_ALL = 1_000_000
"""A number of pods that no job has."""


def creation(job: TorchJob, attempt: int) -> tuple[CreateObject, ...]:
    """Return the action that creates the budget; none if the job allows evictions. The budget is deleted with the job,
    and a pod that has ended may be evicted in spite of it.
    """
    if job.spec.evictions == "Allow":
        return ()
    return (CreateObject(POD_DISRUPTION_BUDGETS, manifest(job, attempt), optional=True),)


def manifest(job: TorchJob, attempt: int) -> Manifest:
    """Return the budget of an attempt."""
    pods = {labels.JOB_UID: job.metadata.uid, labels.ATTEMPT: str(attempt)}
    metadata = {
        "name": f"{job.metadata.name}-evictions-{attempt}",
        "namespace": job.metadata.namespace,
        "labels": {labels.JOB_NAME: job.metadata.name, **pods},
        "ownerReferences": [job.owner],
    }
    return POD_DISRUPTION_BUDGETS.manifest(
        metadata, spec={"minAvailable": MORE_THAN_ALL, "selector": {"matchLabels": pods}}
    )
