"""Whose name a job may have, with the admission policy of the chart on a real API server."""

from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.cli import submission
from coordinator.rbac.permissions import RESTORE, USER, WORKER
from crds import labels
from crds.api_resources import TORCHJOBS, Resource
from deploy import chart
from kube import errors
from kube.api import Manifest
from kube.client import KubernetesCluster
from tests.support.coordinator.desk import clear, manifest
from tests.support.rbac.access import TENANT, Granted
from tests.support.waiting import until

pytestmark = pytest.mark.apiserver
SOMEBODY = "system:serviceaccount:team-b:somebody"
GROUP = "admissionregistration.k8s.io"
KINDS = {
    each.kind: each
    for each in (
        Resource(GROUP, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False),
        Resource(
            GROUP, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", namespaced=False
        ),
    )
}


def job(name: str, submitter: str | None = None) -> Manifest:
    """Return a job that names who submits it."""
    body = manifest(name, TENANT)
    annotations = {} if submitter is None else {labels.SUBMITTED_BY: submitter}
    return body | {"metadata": body["metadata"] | {"annotations": annotations}}


def annotate(cluster: KubernetesCluster, name: str, submitter: str | None) -> None:
    cluster.patch(TORCHJOBS, name, {"metadata": {"annotations": {labels.SUBMITTED_BY: submitter}}}, TENANT)


def is_refused(cluster: KubernetesCluster) -> bool:
    try:
        cluster.create(TORCHJOBS, job("other", SOMEBODY), TENANT, dry_run=True)
    except errors.Forbidden:
        return True
    return False


@pytest.fixture
def verified(granted: Granted) -> Iterator[Granted]:
    """Install the policy, and wait until it is in force."""
    documents = [each for each in chart.render() if each["kind"] in KINDS]
    assert [each["kind"] for each in documents] == [*KINDS]
    for each in documents:
        granted.admin.create(KINDS[each["kind"]], each)
    until(lambda: is_refused(granted.cluster(USER)))
    yield granted
    for each in documents:
        granted.admin.delete(KINDS[each["kind"]], each["metadata"]["name"])
    until(lambda: not is_refused(granted.cluster(USER)))
    clear(granted.admin)


def test_a_job_names_its_submitter_or_nobody_and_the_name_never_changes(verified: Granted) -> None:
    user, own = verified.cluster(USER), verified.name(USER)
    documents = [submission.Submission("FILE", TENANT, job(name, SOMEBODY)) for name in ("one", "two")]
    submission.submit(user, documents, dry_run=False)
    found = {item["metadata"]["name"]: item["metadata"]["annotations"] for item in user.list(TORCHJOBS, TENANT).items}
    assert {name: each[labels.SUBMITTED_BY] for name, each in found.items()} == {"one": own, "two": own}
    user.create(TORCHJOBS, job("nobody"), TENANT)

    with pytest.raises(errors.Forbidden, match=f"has to be {own}, who submits the job, or absent"):
        user.create(TORCHJOBS, job("other", SOMEBODY), TENANT)
    changes: list[tuple[str, Any]] = [("one", SOMEBODY), ("one", None), ("nobody", own), ("nobody", SOMEBODY)]
    for name, submitter in changes:
        with pytest.raises(errors.Forbidden, match="does not change"):
            annotate(user, name, submitter)
    for name in ("one", "nobody"):
        user.patch(TORCHJOBS, name, {"spec": {"suspend": True}, "metadata": {"labels": {"a": "b"}}}, TENANT)


def test_who_writes_statuses_goes_on_and_a_restore_brings_back_the_jobs_of_others(verified: Granted) -> None:
    restores = verified.cluster(RESTORE)
    restores.create(TORCHJOBS, job("one", SOMEBODY), TENANT)
    status = {"status": {"phase": "Succeeded", "completionTime": "2026-01-01T00:00:00Z"}}
    verified.cluster(WORKER).patch(TORCHJOBS, "one", status, TENANT, subresource="status")
    annotate(verified.admin, "one", "somebody else")
