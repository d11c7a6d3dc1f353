"""The life of a gang on a real API server; the tests act as Volcano's scheduler."""

from collections.abc import Iterator
from typing import Any

import pytest

from crds import labels
from crds.api_resources import GANG_QUEUES, POD_GROUPS, PODS, TORCHJOBS
from kube.api import Manifest
from kube.errors import NotFound
from reconcilers import errors
from reconcilers.views import pod_group_view
from tests.reconcilers.conftest import benches
from tests.support.coordinator import kinds
from tests.support.reconcilers import builders
from tests.support.reconcilers.bench import Bench
from tests.support.reconcilers.builders import task

PAIR = {"Master": task(), "Worker": task(2)}


@pytest.fixture
def gang(cluster: Any, namespace: str) -> Iterator[Bench]:
    kinds.install_gangs(cluster)
    yield from benches(cluster, namespace, gang_scheduler="volcano")


def group(bench: Bench, stage: int = 0) -> Manifest:
    return bench.cluster.get(POD_GROUPS, f"digits-{stage}", bench.namespace)


def let_in(bench: Bench, stage: int = 0, phase: str = "Inqueue") -> None:
    status = {"status": {"phase": phase}}
    bench.cluster.patch(POD_GROUPS, f"digits-{stage}", status, bench.namespace)


def begin(bench: Bench, tasks: dict[str, Any] | None = None, **fields: Any) -> None:
    """Submit and reconcile a job until its group is created."""
    bench.submit(tasks or PAIR, **fields)
    bench.pick()
    bench.reconcile()


def test_gang_job_succeeds_with_group_and_gates(gang: Bench) -> None:
    begin(gang)
    assert gang.names() == []
    made = group(gang)
    assert made["spec"]["minMember"] == 3
    assert made["metadata"]["ownerReferences"][0]["uid"] == gang.key.uid
    assert gang.reconcile() == pytest.approx(10.0, abs=9.0), "after this time, the job says what it waits for"
    assert gang.names() == [], "the group is not let in"
    let_in(gang)
    gang.reconcile()
    assert gang.names() == ["digits-master-0", "digits-worker-0", "digits-worker-1"]
    gang.reconcile()
    worker = gang.cluster.get(PODS, "digits-worker-0", gang.namespace)
    assert (worker["spec"]["schedulerName"], worker["spec"]["initContainers"][0]["name"]) == ("volcano", "torchq-start")
    assert labels.START not in worker["metadata"]["annotations"]
    gang.move("Running", "digits-master-0")
    gang.reconcile()
    opened = [gang.cluster.get(PODS, f"digits-worker-{each}", gang.namespace) for each in (0, 1)]
    assert {each["metadata"]["annotations"][labels.START] for each in opened} == {"open"}
    gang.reconcile()
    gang.move("Running")
    gang.reconcile()
    assert gang.job.status.phase == "Running"
    gang.move("Succeeded")
    gang.reconcile(times=2)
    assert gang.job.status.phase == "Succeeded"
    with pytest.raises(NotFound):
        group(gang)
    calls = gang.counting.calls
    assert calls["patch Pod"] == 2, "one write for the gate of each pod"
    assert (calls["create PodGroup"], calls["delete PodGroup"], calls["patch PodGroup"]) == (1, 1, 0)


def test_next_stage_gets_its_group_when_previous_succeeds(gang: Bench) -> None:
    begin(gang, {"Prepare": task(), "Master": task(dependsOn=[{"taskType": "Prepare", "phase": "Succeeded"}])})
    let_in(gang)
    gang.reconcile()
    assert gang.names() == ["digits-prepare-0"]
    gang.move("Succeeded")
    gang.reconcile()
    assert set(gang.job.status.stages) == {"1"}
    with pytest.raises(NotFound):
        group(gang)
    let_in(gang, 1)
    gang.remove("digits-prepare-0")
    gang.reconcile(times=2)
    assert gang.names() == ["digits-master-0"], "the task has succeeded, whether its pod exists or not"


def test_missing_or_closed_gang_queue_is_reported(gang: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_group_view, "REMEMBERED_SECONDS", 0.0)
    begin(gang, schedulingPolicy={"gangQueue": "closed-one"})
    gang.reconcile()
    assert gang.true_condition("Admitted")[0] == "GangQueueMissing"
    body = {"apiVersion": GANG_QUEUES.api_version, "kind": "Queue", "metadata": {"name": "closed-one"}, "spec": {}}
    gang.cluster.create(GANG_QUEUES, body)
    try:
        gang.cluster.patch(GANG_QUEUES, "closed-one", {"status": {"state": "Closed"}}, subresource="status")
        gang.reconcile()
        assert gang.true_condition("Admitted")[0] == "GangQueueClosed"
        gang.cluster.patch(GANG_QUEUES, "closed-one", {"status": {"state": "Open"}}, subresource="status")
        gang.reconcile()
        assert gang.true_condition("Admitted")[0] == "Admitted"
    finally:
        gang.cluster.delete(GANG_QUEUES, "closed-one")


def strange(gang: Bench, uid: str, *, owned: bool) -> None:
    """Create a foreign group with the name of the job's first group."""
    metadata = builders.left_over("digits-0", uid, owned=owned)
    body = {"apiVersion": POD_GROUPS.api_version, "kind": "PodGroup", "metadata": metadata}
    gang.cluster.create(POD_GROUPS, {**body, "spec": {"minMember": 9}}, gang.namespace)


def test_group_of_earlier_job_with_the_name_is_deleted(gang: Bench) -> None:
    strange(gang, "earlier", owned=True)
    gang.submit(PAIR)
    gang.pick()
    assert gang.reconcile() == 0.2
    gang.cluster.patch(POD_GROUPS, "digits-0", {"metadata": {"finalizers": None}}, gang.namespace)
    gang.reconcile()
    assert group(gang)["metadata"]["labels"][labels.JOB_UID] == gang.key.uid


def test_group_with_only_the_label_raises_name_taken(gang: Bench) -> None:
    gang.submit(PAIR)
    strange(gang, gang.key.uid, owned=False)
    gang.pick()
    with pytest.raises(errors.NameTaken, match="podgroup named digits-0"):
        gang.reconcile()
    said = next(each for each in gang.job.status.conditions if each.type == "Admitted")
    assert said.reason == "NameTaken"
    gang.cluster.delete(TORCHJOBS, gang.key.name, gang.namespace)
    gang.reconcile()
    assert group(gang)["spec"]["minMember"] == 9
    assert "deletionTimestamp" not in group(gang)["metadata"]


def test_resize_changes_only_fields_of_torchq(gang: Bench) -> None:
    begin(gang)
    let_in(gang, phase="Running")
    spec = {"minMember": 9, "minTaskMember": {"master": 1, "worker": 8}, "weight": 3}
    gang.cluster.patch(POD_GROUPS, "digits-0", {"spec": spec}, gang.namespace)
    gang.reconcile()
    found = group(gang)
    assert found["spec"]["minMember"] == 3
    assert found["spec"]["minTaskMember"] == {"master": 1, "worker": 2}
    assert (found["spec"]["weight"], found["status"]["phase"]) == (3, "Running"), "the fields of the scheduler are kept"
    assert found["metadata"]["uid"] == group(gang)["metadata"]["uid"]
