"""Reads a job and its pods.

One rule: an object counts only if it belongs to the job: another job may have its name by now, and any pod its labels.
"""

from crds import labels, owners
from crds.api_resources import PODS, TORCHJOBS
from crds.keys import JobKey
from kube import errors
from kube.api import Cluster, Manifest


def read(cluster: Cluster, key: JobKey) -> Manifest:
    """Return a job; without a uid, any job of its name. Raise NotFound if the job is gone, and any other
    ClusterError."""
    item = cluster.get(TORCHJOBS, key.name, key.namespace)
    if key.uid and item["metadata"]["uid"] != key.uid:
        raise errors.NotFound(f"job {key} is gone; {key.namespace}/{key.name} is another job now")
    return item


def pods(cluster: Cluster, key: JobKey) -> list[Manifest]:
    """Return the pods of a job that exist. Raise any ClusterError."""
    return list(filter(is_of_job, cluster.list(PODS, key.namespace, label_selector=selector(key)).items))


def selector(key: JobKey) -> str:
    """Return the selector of the labels that the pods of a job have."""
    return f"{labels.JOB_UID}={key.uid}"


def is_of_job(pod: Manifest) -> bool:
    """Return whether a pod belongs to a job, and does not merely have its labels."""
    return bool(owners.job_uid(pod["metadata"]))
