"""The port for reports of a coordinator: when it is open, and how it answers pods of a cluster."""

import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from coordinator.errors import CoordinatorError
from coordinator.http import report_port
from coordinator.leader.coordinator import Coordinator
from coordinator.port_settings import ANY_PORT
from coordinator.reports.tokens import ReportKey
from coordinator.settings import Settings
from crds import labels
from crds.api_resources import PODS, TORCHJOBS
from crds.keys import JobKey
from kube.client import KubernetesCluster
from tests.doubles.memory_reports import MemoryReports
from tests.doubles.memory_store import MemoryStore
from tests.doubles.memory_work import MemoryWork
from tests.support.clock import Clock
from tests.support.reconcilers.builders import ADMISSION, status, template
from tests.support.waiting import SECONDS, until

SECRET = ReportKey(b"a key of the installation")


class Place:
    """A coordinator, with the stores that its port uses."""

    def __init__(self, cluster: KubernetesCluster, namespace: str, **settings: Any) -> None:
        queues = MemoryStore(lambda *_: None)
        queues.rebuild(1, [], [])
        self.work = MemoryWork(lambda: 0.0, queues.epoch, lambda _: None)
        self.reports = MemoryReports(Clock())
        options = Settings(lease_namespace=namespace, **{"report_port": ANY_PORT, **settings})
        self.coordinator = Coordinator(cluster, queues, self.work, options)


@pytest.fixture
def place(embedded_cluster: KubernetesCluster, namespace: str) -> Iterator[Place]:
    """Return a coordinator that knows the jobs and pods of the cluster, and does not lead."""
    place = Place(embedded_cluster, namespace)
    informers = place.coordinator.watches.informers
    for informer in informers:
        informer.start()
    assert all(informer.wait_synced(SECONDS) for informer in informers)
    yield place
    for informer in informers:
        informer.stop()


def ask(port: int, path: str, uid: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {SECRET.token(uid)}"}
    sent = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers)
    try:
        with urllib.request.urlopen(sent, timeout=SECONDS) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def make_job(place: Place, namespace: str, **changes: Any) -> JobKey:
    """Create an admitted job of two workers, and the pod of the second worker."""
    cluster = place.coordinator.cluster
    worker = {"numTasks": 3, "template": template(), "dependsOn": []}
    policy = {"numMinReplicas": 1, "numMaxReplicas": 4, "mode": "InPlaceRestart"}
    spec = {"torchTaskSpecs": {"Worker": worker}, "torchElasticPolicy": policy, **changes}
    body = {"apiVersion": TORCHJOBS.api_version, "kind": TORCHJOBS.kind, "metadata": {"name": "train"}, "spec": spec}
    made = cluster.create(TORCHJOBS, body, namespace)
    since = "2026-01-02T03:00:00Z"
    scaling = {"from": 2, "to": 1, "since": since} if "schedulingPolicy" in changes else None
    admission = {**ADMISSION, "workers": 2, "grown": 0}
    written = status("Running", admission=admission, restartGeneration=3, scaling=scaling)
    cluster.patch(TORCHJOBS, "train", {"status": written}, namespace, subresource="status")
    key = JobKey(namespace, "train", made["metadata"]["uid"])
    owner = {"apiVersion": made["apiVersion"], "kind": "TorchJob", "name": "train", "uid": key.uid, "controller": True}
    marks = {labels.JOB_UID: key.uid, labels.JOB_NAME: "train", labels.ATTEMPT: "1"}
    metadata = {"name": "train-worker-1", "labels": marks, "ownerReferences": [owner]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template()["spec"]}
    cluster.create(PODS, pod, namespace)
    watches = place.coordinator.watches
    until(lambda: watches.pods.get(namespace, "train-worker-1"))
    until(lambda: (job := watches.job(key)) is not None and job.admission)
    return key


def test_a_pod_reports_and_asks_for_its_world(place: Place, namespace: str) -> None:
    key = make_job(place, namespace)
    with report_port.serving(place.coordinator, SECRET, place.reports) as port:
        where = f"/v1/jobs/{namespace}/train"
        assert ask(port, f"{where}/report", key.uid, {"pod": "train-worker-1", "step": 8}) == (200, {})
        assert ask(port, f"{where}/report", key.uid, {"pod": "train-worker-0", "step": 8})[0] == 400, (
            "the job has no such pod"
        )
        hosts = [{"host": f"train-worker-{index}", "slots": 1} for index in (0, 1)]
        world = {"size": 2, "rank": 1, "min": 1, "max": 4, "generation": 3, "target": 3, "hosts": hosts}
        assert ask(port, f"{where}/world?pod=train-worker-1", key.uid) == (200, world)
        assert ask(port, f"{where}/world", key.uid) == (200, {**world, "rank": None})
        assert ask(port, f"{where}/world", "another")[0] == 403
    assert place.reports.read([key])[key].pods["train-worker-1"].step == 8, "the last batch is written at the end"
    assert place.work.inspect().records == {}, "a report makes no work for workers"


def test_an_answer_to_the_open_request_to_save_is_work(place: Place, namespace: str) -> None:
    key = make_job(place, namespace, schedulingPolicy={"checkpointSeconds": 60})
    place.coordinator.cluster.patch(
        TORCHJOBS, "train", {"spec": {"torchTaskSpecs": {"Worker": {"numTasks": 1}}}}, namespace
    )
    until(lambda: (job := place.coordinator.watches.job(key)) and job.save_request)
    where = f"/v1/jobs/{namespace}/train/report"
    with report_port.serving(place.coordinator, SECRET, place.reports) as port:
        _, asked = ask(port, where, key.uid, {"pod": "train-worker-1", "step": 8, "checkpoint": 7})
        assert asked == {"checkpoint": 1767322800}
    assert place.work.inspect().records == {}, "the report answers another request"
    with report_port.serving(place.coordinator, SECRET, place.reports) as port:
        assert ask(port, where, key.uid, {"pod": "train-worker-1", "step": 8, **asked}) == (200, asked)
    records = place.work.inspect().records
    assert {of: record.kind for of, record in records.items()} == {key: "ends"}, "pods are about to end"


def test_without_a_key_or_a_port_there_is_no_server(embedded_cluster: KubernetesCluster, namespace: str) -> None:
    for key, number in ((None, ANY_PORT), (SECRET, 0)):
        place = Place(embedded_cluster, namespace, report_port=number)
        with report_port.serving(place.coordinator, key, place.reports) as port:
            assert port == 0
            assert not {"health", "reports"} & {thread.name for thread in threading.enumerate()}


def test_a_port_in_use_is_an_error_that_names_it(embedded_cluster: KubernetesCluster, namespace: str) -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = Place(embedded_cluster, namespace, report_port=taken.getsockname()[1])
        with (
            pytest.raises(CoordinatorError, match=r"127\.0\.0\.1:\d+.*in use.*report_port"),
            report_port.serving(place.coordinator, SECRET, place.reports),
        ):
            pass
        assert "reports" not in {thread.name for thread in threading.enumerate()}
