"""Who asks a coordinator: tokens of accounts, a job's own token, and no token, on loopback and in a pod."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.access.readers import EVERYWHERE, Reader
from coordinator.http.bounded_server import Question
from coordinator.http.coordinator_server import RequestHandler
from coordinator.http.queue_api import QueueApi
from coordinator.leader.coordinator import Coordinator
from coordinator.query.queries import StoreQueries
from coordinator.query.questions import ANOTHER
from coordinator.reports.tokens import ReportKey
from coordinator.settings import Settings
from crds.api_resources import NAMESPACES, TENANT_QUEUES, TORCHJOBS
from crds.keys import JobKey
from kube import errors
from kube.client import KubernetesCluster
from queues.rules import PickRules
from queues.values import Entry
from tests.coordinator.cli.test_api_client import VITALS
from tests.doubles.memory_reports import MemoryReports
from tests.doubles.memory_store import MemoryStore
from tests.doubles.memory_work import MemoryWork
from tests.support.clock import Clock
from tests.support.coordinator.desk import manifest, remove
from tests.support.queues.builders import spec
from tests.support.waiting import SECONDS, until

KEY = ReportKey(b"a key of the installation")
PATHS = ["/status", "/v1/queues", "/v1/queues/{ours}", "/v1/queues/{theirs}", "/v1/next?n=9", "/v1/next?n=9&roomy=1",
         "/v1/places?queues={ours},{theirs}", "/v1/scale/plan", "/v1/status", "/v1/settings",
         "/v1/jobs/{ours}/train/why", "/v1/jobs/{ours}/train/report"]  # fmt: skip


class Reviews:
    """Tokens that are the names of the namespaces whose jobs their accounts may list; `all` for all."""

    away = False

    def reader(self, token: str) -> Reader | None:
        if self.away:
            raise errors.Unreachable("the API server is away")
        if token == "forged":
            return None
        return EVERYWHERE if token == "all" else Reader(namespaces=frozenset([token]))


class Place:
    """A coordinator with a waiting job of each of two teams, each in the queue of its team."""

    def __init__(self, cluster: KubernetesCluster, namespace: str) -> None:
        self.cluster, self.namespace, self.theirs = cluster, namespace, f"{namespace}-rival"
        store = MemoryStore(lambda *_: None)
        work = MemoryWork(lambda: 0.0, store.epoch, lambda _: None)
        self.coordinator = Coordinator(cluster, store, work, Settings(lease_namespace=namespace, pool="none"))
        self.reviews = Reviews()
        self.keys: dict[str, JobKey] = {}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.theirs}}
        cluster.create(NAMESPACES, body)
        for team in (namespace, self.theirs):
            body = {"apiVersion": TENANT_QUEUES.api_version, "kind": "TenantQueue", "metadata": {"name": team}}
            cluster.create(TENANT_QUEUES, body | {"spec": {"namespaces": [team]}})
            self.keys[team] = JobKey.of(cluster.create(TORCHJOBS, manifest("train", team), team))
        store.rebuild(1, [], [self.entry(team) for team in self.keys])
        store.configure([*map(spec, self.keys)], None)
        queries = StoreQueries(store, lambda: VITALS, PickRules(), report_reader=MemoryReports(Clock()))
        self.api = QueueApi(self.coordinator, queries)
        self.handler = RequestHandler(self.coordinator, self.api, self.reviews, KEY)  # type: ignore[arg-type]

    def entry(self, team: str) -> Entry:
        return Entry(key=self.keys[team], queue=team, submitted=1.0, demand={"jobs": 1})

    def in_a_pod(self) -> None:
        """Let the address be the one of a pod, which the API server alone reaches."""
        self.coordinator.settings = self.coordinator.settings.model_copy(update={"health_address": "0.0.0.0"})

    def ask(self, path: str, token: str = "", job: str = "") -> tuple[int, Any, bytes]:
        authorization = f"Bearer {KEY.token(job)}" if job else ""
        path = path.format(ours=self.namespace, theirs=self.theirs)
        answer = self.handler.answer(Question(path, "127.0.0.1", authorization=authorization, token=token))
        is_json = answer.kind == "application/json"
        return int(answer.code), json.loads(answer.body) if is_json else answer.body.decode(), answer.body


@pytest.fixture
def place(embedded_cluster: KubernetesCluster, namespace: str) -> Iterator[Place]:
    found = Place(embedded_cluster, namespace)
    informers = found.coordinator.watches.informers
    for informer in informers:
        informer.start()
    assert all(informer.wait_synced(SECONDS) for informer in informers)
    yield found
    for informer in informers:
        informer.stop()
    for team in (namespace, found.theirs):
        remove(embedded_cluster, TENANT_QUEUES, team, "")


@pytest.mark.parametrize("path", [*PATHS, "/v1/openapi.json", "/elsewhere", "/v1/", "/"])
def test_on_loopback_nothing_but_probes_is_answered_without_a_token(place: Place, path: str) -> None:
    code, said, _ = place.ask(path)
    assert (code, said["code"]) == (401, 401)
    assert "Torchq-Token" in said["message"]
    assert place.ask("/healthz")[0] == 200


@pytest.mark.parametrize("token", ["", "{ours}"])
@pytest.mark.parametrize("path", PATHS)
def test_no_byte_of_an_answer_names_another_team(place: Place, path: str, token: str) -> None:
    place.in_a_pod()
    _, _, text = place.ask(path, token.format(ours=place.namespace))
    told = text.replace(place.theirs.encode(), b"") if "{theirs}" in path and b"there is no queue" in text else text
    assert place.theirs.encode() not in told
    assert place.keys[place.theirs].uid.encode() not in told
    _, _, everything = place.ask(path, "all")
    if path in ("/v1/queues", "/v1/next?n=9", "/v1/places?queues={ours},{theirs}"):
        assert place.theirs.encode() in everything, "else the test finds nothing"


def test_a_team_is_told_about_its_own_jobs_and_queue(place: Place) -> None:
    place.in_a_pod()
    team = place.namespace
    assert [item["metadata"]["name"] for item in place.ask("/v1/queues", team)[1]["items"]] == [team]
    assert place.ask("/v1/queues/{ours}", team)[1]["status"]["first"] == f"{team}/train"
    assert [item["job"] for item in place.ask("/v1/places?queues={ours},{theirs}", team)[1]["items"]] == [
        f"{team}/train"
    ]
    assert sorted(item["job"] for item in place.ask("/v1/next?n=9", team)[1]["items"]) == sorted(
        [ANOTHER, f"{team}/train"]
    )
    assert place.ask("/v1/jobs/{ours}/train/why", team)[1]["position"] == 1


@pytest.mark.parametrize("token", ["", "{ours}"])
@pytest.mark.parametrize("name", ["train", "nobody"])
@pytest.mark.parametrize("what", ["why", "report"])
def test_whether_another_team_has_a_job_is_not_told(place: Place, token: str, name: str, what: str) -> None:
    place.in_a_pod()
    code, said, _ = place.ask(f"/v1/jobs/{{theirs}}/{name}/{what}", token.format(ours=place.namespace))
    assert (code, said["message"].partition(":")[0]) == (
        403, f"jobs of namespace {place.theirs} are told to accounts that may list its TorchJobs",
    )  # fmt: skip
    assert place.ask("/v1/jobs/{theirs}/nobody/why", "all")[0] == 404


def test_a_queue_of_another_team_is_as_unknown_as_one_that_is_not_there(place: Place) -> None:
    place.in_a_pod()
    for name in (place.theirs, "nowhere"):
        code, said, _ = place.ask(f"/v1/queues/{name}", place.namespace)
        assert (code, said["message"]) == (404, f"there is no queue {name} in the queues")


def test_a_check_is_for_a_namespace_of_the_reader(place: Place) -> None:
    question = '/v1/check?job={{"namespace":"%s","queue":"nowhere","charge":{{}}}}'
    place.in_a_pod()
    assert place.ask(question % place.theirs, place.namespace)[0] == 403
    assert place.ask(question % place.theirs)[0] == 403
    code, said, text = place.ask(question % place.namespace, place.namespace)
    assert (code, said["findings"][0]["code"]) == (200, "QueueNotFound")
    assert place.theirs.encode() not in text


def test_a_report_is_told_to_the_pods_of_the_job_by_its_own_token(place: Place) -> None:
    own, theirs = (place.keys[team].uid for team in (place.namespace, place.theirs))
    path = "/v1/jobs/{ours}/train/report"
    assert place.ask(path, job=own)[:2] == (200, {"pods": []})
    assert place.ask(path, job=theirs)[0] == 403
    assert place.ask("/v1/jobs/{ours}/train/why", job=own)[0] == 403, "the token is for reports"
    assert place.ask("/v1/queues", job=own)[1] == {"items": []}
    assert place.ask(path, place.namespace)[0] == 200


def test_a_token_that_is_not_accepted_is_refused_and_one_that_cannot_be_reviewed_too(place: Place) -> None:
    place.in_a_pod()
    assert place.ask("/v1/next", "forged")[0] == 401
    place.reviews.away = True
    code, said, _ = place.ask("/v1/next", "all")
    assert code == 503
    assert "try again" in said["message"]
    assert place.ask("/healthz")[0] == 200


def test_names_of_objects_in_the_status_are_for_who_may_list_all(place: Place) -> None:
    place.coordinator.watches.errors.record("train", ValueError("odd"))
    assert "skipped" in place.ask("/status", "all")[1]
    assert "skipped" not in place.ask("/status", place.namespace)[1]


def test_a_queue_for_all_is_listed_once_the_team_has_a_job_in_it(place: Place) -> None:
    shared = f"{place.namespace}-shared"
    body = {"apiVersion": TENANT_QUEUES.api_version, "kind": "TenantQueue", "metadata": {"name": shared}, "spec": {}}
    place.cluster.create(TENANT_QUEUES, body)
    try:
        place.cluster.create(TORCHJOBS, manifest("more", shared), place.namespace)
        readers = [Reader(namespaces=frozenset([team])) for team in (place.namespace, place.theirs)]
        mine, others = readers
        until(lambda: place.api.bounds(mine).is_listed(shared))
        until(lambda: place.api.bounds(others).shows(shared))
        assert not place.api.bounds(others).is_listed(shared)
    finally:
        remove(place.cluster, TENANT_QUEUES, shared, "")
