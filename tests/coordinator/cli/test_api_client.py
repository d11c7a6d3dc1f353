"""A coordinator's read-only API, and commands that find the coordinator by its Lease or by its URL, or find none."""

import json
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis

from coordinator.access.readers import HEADER
from coordinator.access.token_reviews import TokenReviews
from coordinator.cli import api_client
from coordinator.cli.session import Session
from coordinator.http import coordinator_server
from coordinator.http.bounded_server import Question
from coordinator.leader.coordinator import Coordinator
from coordinator.leader.election import API_ANNOTATION, SERVICE_ANNOTATION
from coordinator.port_settings import ANY_PORT, ServiceName
from coordinator.query.queries import StoreQueries
from coordinator.query.questions import UnknownObject
from coordinator.rbac.permissions import LEASE
from coordinator.reports.report_values import ArrivedReport, Report
from coordinator.settings import Settings
from crds.api_resources import LEASES, TENANT_QUEUES, TORCHJOBS
from crds.keys import JobKey
from kube import errors as cluster_errors
from kube.client import KubernetesCluster
from queues import errors, installation
from queues.installation import Installation
from queues.rules import PickRules
from queues.storage.stats import QueueStats
from queues.values import Entry
from tests.doubles.memory_reports import MemoryReports
from tests.doubles.memory_store import MemoryStore
from tests.doubles.memory_work import MemoryWork
from tests.support import ports, redis_server
from tests.support.clock import Clock
from tests.support.coordinator import asking
from tests.support.coordinator.command import Torchq, table
from tests.support.coordinator.desk import manifest, task
from tests.support.queues.builders import entries, key, registration, spec
from tests.support.waiting import SECONDS, patient

VITALS = QueueStats(
    at=1.0,
    epoch=1,
    picks=10,
    runs=20,
    ready=0,
    delayed=0,
    leased=0,
    waiting=3,
    admitted=0,
    members=(registration("w", 8),),
)


class Store(MemoryStore):
    """A store that can be made unreachable, with reports beside it."""

    away = False
    looks = 0
    """How often the key figures of `torchq status` were read."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.reports = MemoryReports(Clock())

    def snapshot(self, *arguments: Any, **options: Any) -> Any:
        if self.away:
            raise errors.StoreUnreachable("Redis at redis://127.0.0.1:6379/0 does not answer: refused")
        return super().snapshot(*arguments, **options)

    def vitals(self) -> QueueStats:
        self.looks += 1
        return VITALS


@pytest.fixture
def store() -> Store:
    store = Store(lambda *_: None)
    store.rebuild(1, [], [*entries("a", 3), *entries("b", 1)])
    store.configure([spec("a", 3), spec("b")], None)
    return store


@pytest.fixture
def desk(embedded_cluster: KubernetesCluster, namespace: str, store: Store) -> Iterator[Coordinator]:
    """Yield a coordinator that leads and answers queries. The working threads of the coordinator do not run."""
    work = MemoryWork(lambda: 0.0, store.epoch, lambda _: None)
    desk = Coordinator(embedded_cluster, store, work, Settings(lease_namespace=namespace, pool="none"))
    with answering(desk, store):
        desk.leadership.step()
        for informer in desk.watches.informers:
            informer.start()
        assert all(informer.wait_synced(SECONDS) for informer in desk.watches.informers)
        yield desk
        for informer in desk.watches.informers:
            informer.stop()


@contextmanager
def answering(desk: Coordinator, store: Store, **others: Any) -> Iterator[int]:
    more = others | {"idle_usage": lambda: coordinator_server.idle_usage(desk), "report_reader": store.reports}
    reading = StoreQueries(store, store.vitals, PickRules(), lambda: coordinator_server.stop_policies(desk), **more)
    with coordinator_server.serving(desk, ANY_PORT, reading) as port:
        yield port


@pytest.fixture
def asked(torchq: Torchq, namespace: str, desk: Coordinator) -> Torchq:
    """Return a function that runs a command which looks for the Lease in the namespace of this coordinator."""

    def run(*arguments: str, code: int = 0, **environ: str) -> Any:
        return torchq(*arguments, code=code, TORCHQ_LEASE_NAMESPACE=namespace, **environ)

    return run


def fetch(desk: Coordinator, path: str) -> Any:
    return api_client.via_url(desk.leadership.address, headers=lambda _: asking.headers(desk.cluster))(path)


def test_the_leader_writes_its_address_to_the_lease(
    desk: Coordinator, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    annotations = embedded_cluster.get(LEASES, LEASE, namespace)["metadata"]["annotations"]
    assert annotations[API_ANNOTATION] == desk.leadership.address
    desk.leadership.address = ""
    desk.leadership.step()
    assert API_ANNOTATION not in embedded_cluster.get(LEASES, LEASE, namespace)["metadata"]["annotations"]


def test_a_leader_on_loopback_names_no_service_and_one_in_a_pod_names_no_url(
    desk: Coordinator, store: Store, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    annotations = embedded_cluster.get(LEASES, LEASE, namespace)["metadata"]["annotations"]
    assert SERVICE_ANNOTATION not in annotations
    in_a_pod = desk.settings.model_copy(update={"health_address": "0.0.0.0", "service": "batch/mine-coordinator"})
    desk.leadership.address, desk.settings = "", in_a_pod
    with answering(desk, store):
        desk.leadership.step()
    annotations = embedded_cluster.get(LEASES, LEASE, namespace)["metadata"]["annotations"]
    assert (annotations[SERVICE_ANNOTATION], annotations.get(API_ANNOTATION)) == ("batch/mine-coordinator", None)


def test_each_path_answers_with_json(desk: Coordinator) -> None:
    assert [each["metadata"]["name"] for each in fetch(desk, "/v1/queues")["items"]] == ["a", "b"]
    assert fetch(desk, "/v1/queues/a")["status"]["pending"] == 3
    assert [each["job"] for each in fetch(desk, "/v1/next?n=2")["items"]] == ["team/a-0000", "team/a-0001"]
    assert fetch(desk, "/v1/jobs/team/a-0001/why?uid=uid-team-a-0001")["position"] == 2
    found = fetch(desk, "/v1/status")
    assert (found["leader"], found["picks"], found["workers"]) == (desk.leadership.identity, 10, {"w": 8})
    assert found["waits"]["admissions"] == 0


def test_scale_plan_shows_why_an_elastic_job_is_not_resized(
    desk: Coordinator, embedded_cluster: KubernetesCluster, namespace: str, asked: Torchq
) -> None:
    assert "no running job" in asked("scale", "plan").output
    policy = {"numMinReplicas": 1, "numMaxReplicas": 4, "autoscale": "Idle"}
    tasks = {"Worker": task(2)}
    embedded_cluster.create(TORCHJOBS, manifest("train", "a", tasks=tasks, torchElasticPolicy=policy), namespace)
    amounts = {"jobs": 1, "pods": 3, "cpu": 3000}
    admission = {"queue": "a", "attempt": 1, "epoch": 1, "charge": amounts, "workers": 3, "grown": 1, "idle": 1}
    status = {"phase": "Admitted", "attempt": 1, "admission": admission}
    made = embedded_cluster.patch(TORCHJOBS, "train", {"status": status}, namespace, subresource="status")
    desk.watches.jobs.wait_for(int(made["metadata"]["resourceVersion"]), SECONDS)
    (found,) = json.loads(asked("scale", "plan", "-o", "json").output)["unchanged"]
    counts = {name: found[name] for name in ("workers", "wanted", "idle", "min", "max")}
    assert counts == {"workers": 3, "wanted": 2, "idle": 1, "min": 1, "max": 4}
    assert (found["job"], found["code"]) == (f"{namespace}/train", "NotRunning")
    assert asked("scale", "plan").output.splitlines()[1].split()[:9] == [
        *(f"{namespace}/train", "a", "3", "2", "1", "1", "4", "-", "NotRunning")
    ]
    assert fetch(desk, "/v1/queues/a")["status"]["idleUsage"] == {"cpu": "1", "pods": "1"}
    assert "Idle growth:   cpu=1,pods=1 of the usage" in asked("queue", "show", "a").output


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/v1/queues/nobody", "there is no queue nobody"),
        ("/v1/jobs/team/nobody/why", "there is no job team/nobody"),
        ("/v1/elsewhere", "try /v1/queues"),
        ("/v1/", "try /v1/queues"),
    ],
)
def test_an_unknown_object_or_path_is_an_error_that_names_it(desk: Coordinator, path: str, words: str) -> None:
    with pytest.raises(UnknownObject, match=words):
        fetch(desk, path)


@pytest.mark.parametrize("count", ["0", "-1", "501", "many", "1" * 500, "%C2%B2"])
def test_next_rejects_an_invalid_count(desk: Coordinator, count: str) -> None:
    with pytest.raises(api_client.CoordinatorError, match="number from 1 to 500"):
        fetch(desk, f"/v1/next?n={count}")


def test_post_is_rejected(desk: Coordinator) -> None:
    request = urllib.request.Request(desk.leadership.address + "/v1/queues", data=b"{}", method="POST")
    with pytest.raises(urllib.error.HTTPError, match="405") as refused:
        urllib.request.urlopen(request, timeout=5)
    refused.value.close()


def test_an_unreachable_redis_is_an_error_that_names_it(desk: Coordinator, store: Store) -> None:
    store.away = True
    with pytest.raises(api_client.CoordinatorError, match=r"Redis at redis://127\.0\.0\.1:6379/0 does not answer"):
        fetch(desk, "/v1/queues")


def test_why_finds_a_job_by_name_without_its_uid(
    desk: Coordinator, store: Store, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    made = embedded_cluster.create(TORCHJOBS, manifest("train", "a"), namespace)["metadata"]
    store.put([Entry(key=JobKey(namespace, "train", made["uid"]), queue="a", submitted=1.0, demand={"jobs": 1})])
    desk.watches.jobs.wait_for(int(made["resourceVersion"]), patient())
    assert fetch(desk, f"/v1/jobs/{namespace}/train/why")["position"] == 1


def test_reports_are_those_of_a_job_that_exists(
    desk: Coordinator, store: Store, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    made = embedded_cluster.create(TORCHJOBS, manifest("train", "a"), namespace)["metadata"]
    desk.watches.jobs.wait_for(int(made["resourceVersion"]), patient())
    path = f"/v1/jobs/{namespace}/train/report"
    assert fetch(desk, path) == {"pods": []}
    key = JobKey(namespace, "train", made["uid"])
    store.reports.keep([ArrivedReport(job=key, report=Report(pod="train-worker-0", step=7))])
    assert fetch(desk, f"{path}?uid={key.uid}")["step"] == 7
    for absent in (f"{path}?uid=another", f"/v1/jobs/{namespace}/nobody/report"):
        with pytest.raises(UnknownObject, match="there is no job"):
            fetch(desk, absent)


# Commands.


def test_commands_find_the_coordinator_by_the_lease(asked: Torchq) -> None:
    rows = table(asked("queue", "list", "--no-headers").stdout)
    assert [row[:5] for row in rows] == [["a", "3", "Open", "3", "0"], ["b", "1", "Open", "1", "0"]]
    picks = json.loads(asked("next", "-n", "2", "-o", "json").stdout)["items"]
    assert [each["job"] for each in picks] == ["team/a-0000", "team/a-0001"]
    assert "pick" in asked("next").stdout.lower()


def test_a_deleted_queue_with_work_is_called_deleted_and_one_that_a_namespace_implies_open(
    asked: Torchq, desk: Coordinator, store: Store, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    asked("queue", "create", "a")
    desk.watches.queues.wait_for(int(embedded_cluster.get(TENANT_QUEUES, "a")["metadata"]["resourceVersion"]), SECONDS)
    store.rebuild(2, [], [*entries("a", 1), *entries("b", 1), *entries("default", 1), *entries(namespace, 1)])
    store.configure([spec("a"), spec("b"), spec("default"), spec(namespace)], None)
    desk.settings = desk.settings.model_copy(update={"implicit_queues": True})
    with answering(desk, store, is_deleted=lambda queue: coordinator_server.is_deleted(desk, queue)):
        desk.leadership.step()
        rows = table(asked("queue", "list", "--no-headers").stdout)
    assert {row[0]: row[2] for row in rows} == {"a": "Open", "b": "Deleted", "default": "Open", namespace: "Open"}


def test_queue_list_joins_figures_of_the_coordinator_with_queue_objects(asked: Torchq) -> None:
    asked("queue", "create", "a", "--weight", "7", "--quota", "cpu=4")
    asked("queue", "create", "new")
    items = json.loads(asked("queue", "list", "-o", "json").stdout)["items"]
    assert [(each["metadata"]["name"], each["spec"].get("weight")) for each in items] == [
        ("a", 7),
        ("b", 1),
        ("new", 1),
    ]
    assert items[0]["status"]["pending"] == 3
    shown = asked("queue", "show", "a").stdout
    assert "Pending:       3" in shown
    assert "cpu=0/4" in shown


def test_lists_can_be_sorted_wide_or_without_headers(asked: Torchq) -> None:
    by_weight = asked("queue", "list", "--sort-by", "-weight", "--no-headers").stdout
    assert [row[0] for row in table(by_weight)] == ["a", "b"]
    assert [row[0] for row in table(asked("queue", "list", "--sort-by", "weight", "--no-headers").stdout)] == ["b", "a"]
    header = asked("queue", "list", "-o", "wide", "-A").stdout.splitlines()[0].split()
    assert header[-4:] == ["COHORT", "BORROWING", "ORDERING", "FIRST"]
    refused = asked("next", "--sort-by", "colour", code=2)
    assert "there is no column 'colour'" in refused.stderr
    assert "PICK" in refused.stderr


def test_config_shows_what_the_coordinator_uses_and_what_this_command_uses(asked: Torchq) -> None:
    shown = json.loads(asked("config", "threads", "namespace", "-o", "json", TORCHQ_THREADS="3").stdout)
    assert list(shown) == ["threads", "namespace"]
    assert shown["threads"]["value"] == str(Settings().threads)
    assert shown["threads"]["source"] == "cluster (TORCHQ_THREADS of this command is not used)"
    assert shown["namespace"]["source"] != "cluster"


def test_status_exits_with_0_if_there_is_no_trouble(asked: Torchq) -> None:
    text = asked("status").stdout
    assert "1 alive, 8 threads" in text
    assert "API server:   ok" in text
    found = json.loads(asked("status", "-o", "json").stdout)
    assert (found["trouble"], found["picks"]) == ({}, 10)


def test_status_reads_the_numbers_a_second_time_only_to_measure_rates(asked: Torchq, store: Store) -> None:
    asked("status")
    assert store.looks == 1
    asked("status", "--seconds", "0.01")
    assert store.looks == 3


def test_top_prints_as_often_as_count_says(asked: Torchq) -> None:
    text = asked("top", "--count", "2", "--every", "0.2").stdout
    assert text.count("Leader:") == 2
    assert text.count("team/a-0000") == 2


def test_commands_find_the_coordinator_by_url(torchq: Torchq, desk: Coordinator) -> None:
    rows = table(torchq("--coordinator", desk.leadership.address, "next", "--no-headers").stdout)
    assert len(rows) == 4
    assert "not the URL" in torchq("--coordinator", "ftp://x", "next", code=1).stderr


def test_a_missing_coordinator_is_one_line_with_a_remedy(torchq: Torchq, namespace: str) -> None:
    told = torchq("next", code=1, TORCHQ_LEASE_NAMESPACE=namespace).stderr
    assert "no coordinator answers" in told
    assert "--redis-url-file" in told
    assert len(told.splitlines()) == 1
    status = torchq("status", code=1, TORCHQ_LEASE_NAMESPACE=namespace)
    assert "no coordinator answers" in status.stdout
    assert "API server:   ok" in status.stdout


def test_commands_reject_an_address_that_is_not_the_leader(
    asked: Torchq, desk: Coordinator, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    embedded_cluster.patch(LEASES, LEASE, {"spec": {"holderIdentity": "another"}}, namespace)
    assert "is not the coordinator that leads" in asked("next", code=1).stderr
    with ports.reserve() as port:
        url = f"http://127.0.0.1:{port}"
        embedded_cluster.patch(LEASES, LEASE, {"metadata": {"annotations": {API_ANNOTATION: url}}}, namespace)
        assert f"the coordinator at {url} does not answer" in asked("next", code=1).stderr


@pytest.mark.redis_server
def test_status_names_why_no_coordinator_leads_on_a_configured_redis(torchq: Torchq, tmp_path: Path) -> None:
    with redis_server.running(tmp_path / "redis.sock") as url:
        with redis.Redis.from_url(url) as client:
            client.set("torchq:owner", Installation("another", "kube-system").encode())
            told = torchq("status", code=1, TORCHQ_REDIS_URL=url).stdout
            assert "belongs to another installation (cluster another, Lease in namespace kube-system)" in told
            client.config_set("maxmemory", "1gb")
            client.config_set("maxmemory-policy", "allkeys-lru")
            told = torchq("status", code=1, TORCHQ_REDIS_URL=url).stdout
        assert "allkeys-lru" in told


def test_restore_says_why_the_coordinator_that_answers_does_not_lead(
    torchq: Torchq, asked: Torchq, embedded_cluster: KubernetesCluster, store: Store, namespace: str, tmp_path: Path
) -> None:
    file = tmp_path / "backup.json"
    body = {"apiVersion": TENANT_QUEUES.api_version, "kind": "TenantQueue", "metadata": {"name": "a"}, "spec": {}}
    file.write_text(json.dumps(body))
    before, ours = Installation("before", "kube-system"), Installation("ours", "kube-system")
    work = MemoryWork(lambda: 0.0, store.epoch, lambda _: None)
    waits = Coordinator(embedded_cluster, store, work, Settings(lease_namespace=namespace, pool="none"))
    waits.leadership.failing = f"Redis {installation.foreign(before.encode().encode(), ours)}"
    with answering(waits, store) as port:
        said = torchq("--coordinator", f"http://127.0.0.1:{port}", "restore", str(file)).stderr
    assert "note: no coordinator can lead, and nothing is admitted: Redis belongs to another installation" in said
    assert "`torchq redis adopt --yes`" in said
    assert "note:" not in asked("restore", str(file)).stderr, "another coordinator leads"


def test_a_configured_redis_is_read_without_a_coordinator(torchq: Torchq) -> None:
    told = torchq("next", code=1, TORCHQ_REDIS_URL="redis://:secret@127.0.0.1:9/0").stderr
    assert "redis://127.0.0.1:9/0 does not answer" in told
    assert "secret" not in told
    noted = torchq("queue", "list", TORCHQ_REDIS_URL="redis://127.0.0.1:9/0")
    assert noted.stdout.startswith("NAME")
    assert "redis://127.0.0.1:9/0 does not answer" in noted.stderr


def test_why_combines_the_state_of_the_job_with_the_state_of_the_queues(
    asked: Torchq, desk: Coordinator, store: Store, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    asked("queue", "create", "a")
    desk.watches.queues.wait_for(
        int(embedded_cluster.get(TENANT_QUEUES, "a")["metadata"]["resourceVersion"]), patient()
    )
    made = embedded_cluster.create(TORCHJOBS, manifest("train", "a"), namespace)["metadata"]
    assert "New" in asked("job", "why", "train").stdout
    demand = {"jobs": 1}
    store.put([Entry(key=JobKey(namespace, "train", made["uid"]), queue="a", submitted=2e9, demand=demand)])
    text = asked("job", "why", "train").stdout
    assert f"job {namespace}/train waits in queue a: BehindOthers" in text
    assert "needs 1 job; 3 jobs ahead in queue a" in text
    assert "number 4 of 4 in queue a, pick 5 from now" in asked("job", "position", "train").stdout
    found = json.loads(asked("job", "why", "train", "-o", "json").stdout)
    assert (found["code"], found["position"], found["of"]) == ("BehindOthers", 4, 4)
    assert "nobody" in asked("job", "why", "nobody", code=1).stderr


def test_proxied_reads_the_service_through_the_api_server(embedded_cluster: KubernetesCluster) -> None:
    service = ServiceName("batch", "mine-coordinator")
    with pytest.raises(api_client.NoCoordinatorKnown, match="namespace batch has no service mine-coordinator;"):
        api_client.via_api_server(embedded_cluster, service)("/v1/queues")

    class Proxy:
        def service(self, namespace: str, name: str, path: str, headers: Mapping[str, str], _patience: object) -> Any:
            assert not headers
            if path.endswith("nobody"):
                raise cluster_errors.NotFound("there is no queue nobody in the queues")
            return {"items": [], "asked": [namespace, name, path]}

    reading = api_client.RemoteQueries(api_client.via_api_server(Proxy(), service))  # type: ignore[arg-type]
    assert reading.next(3)["asked"] == ["batch", "http:mine-coordinator:http", "/v1/next?n=3&roomy=0"]
    with pytest.raises(UnknownObject):
        reading.queue("nobody")
    assert key("x").uid in reading.job(key("x"))["asked"][2]


class LeaseAndProxy:
    """An API server with one Lease and with services. The server records each request."""

    def __init__(self, annotations: dict[str, str], error: Exception | None = None) -> None:
        self.annotations, self.error = annotations, error
        self.asked: list[str] = []

    def get(self, _resource: Any, name: str, namespace: str = "") -> Any:
        self.asked.append(f"get {namespace}/{name}")
        if self.error:
            raise self.error
        return {"metadata": {"annotations": self.annotations}, "spec": {}}

    def account_token(self, namespace: str, account: str, audience: str, seconds: int) -> str:
        assert (audience, seconds) == ("torchq", 600)
        return f"{namespace}/{account}"

    def service(self, namespace: str, name: str, _path: str, headers: Mapping[str, str], _patience: object) -> Any:
        self.asked.append(f"proxy {namespace}/{name} as {headers[HEADER]}")
        return {"items": []}


@pytest.mark.parametrize(
    ("annotation", "environ", "error", "asked"),
    [
        ("batch/mine", {}, None, "batch/http:mine:http"),
        ("batch/mine", {"TORCHQ_SERVICE": "own/other"}, None, "own/http:other:http"),
        ("", {}, None, "torchq-system/http:torchq-coordinator:http"),
        ("no service/../x", {}, None, "torchq-system/http:torchq-coordinator:http"),
        ("batch/mine", {}, cluster_errors.NotFound("no Lease"), "torchq-system/http:torchq-coordinator:http"),
        ("batch/mine", {"TORCHQ_SERVICE": "a/b"}, cluster_errors.Forbidden("no"), "a/http:b:http"),
    ],
    ids=["lease", "own setting", "neither", "unreadable", "no lease", "forbidden"],
)
def test_commands_ask_the_service_of_the_lease_unless_the_user_names_one(
    annotation: str, environ: dict[str, str], error: Exception | None, asked: str
) -> None:
    session, api = (
        Session({"namespace": "team-a"}, None, environ),
        LeaseAndProxy({SERVICE_ANNOTATION: annotation}, error),
    )
    session.__dict__["cluster"] = api
    api_client.find(session).queues()
    assert api.asked == ["get kube-system/torchq-coordinator", f"proxy {asked} as team-a/torchq-user"], (
        "one request for the Lease"
    )


def test_a_queue_without_an_object_is_shown_while_it_has_jobs(asked: Torchq, store: Store) -> None:
    assert table(asked("queue", "show", "b").stdout)[0] == ["Name:", "b"]
    assert [row[0] for row in table(asked("queue", "list", "--no-headers").stdout)] == ["a", "b"]
    assert "nobody" in asked("queue", "show", "nobody", code=1).stderr


@pytest.mark.parametrize(
    ("host", "code"), [("127.0.0.1:1", 200), ("localhost", 200), ("[::1]:8", 200), ("evil.example", 403), ("[", 403)]
)
def test_requests_with_a_foreign_host_name_are_rejected_on_loopback(desk: Coordinator, host: str, code: int) -> None:
    asked = coordinator_server.RequestHandler(desk, None, TokenReviews(desk.cluster))
    assert asked.answer(Question("/healthz", host))[0] == code
    everywhere = replace(desk, settings=desk.settings.model_copy(update={"health_address": "0.0.0.0"}))
    handler = coordinator_server.RequestHandler(everywhere, None, TokenReviews(desk.cluster))
    assert handler.answer(Question("/healthz", host))[0] == 200


def test_an_unforeseen_error_is_answered_with_500_and_logged(
    desk: Coordinator, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Store, "snapshot", lambda *_: None)
    with pytest.raises(api_client.NoCoordinator, match="HTTP status 500"):
        fetch(desk, "/v1/queues")
    assert "GET /v1/queues" in caplog.text
    assert fetch(desk, "/status")["leading"] is True


def test_why_knows_at_once_what_keeps_a_job_out_of_the_order(
    asked: Torchq, desk: Coordinator, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    asked("queue", "create", "theirs", "--namespace", "somebody-else")
    queue = embedded_cluster.get(TENANT_QUEUES, "theirs")
    made = embedded_cluster.create(TORCHJOBS, manifest("train", "theirs"), namespace)
    desk.watches.queues.wait_for(int(queue["metadata"]["resourceVersion"]), patient())
    desk.watches.jobs.wait_for(int(made["metadata"]["resourceVersion"]), patient())
    found = json.loads(asked("job", "why", "train", "-o", "json").stdout)
    assert found["code"] == "NotAllowed"
    asked("job", "move", "train", "nobodys", "--anyway")
    told = asked("job", "why", "train").stdout
    assert "QueueNotFound" in told or "NotAllowed" in told  # QueueNotFound once the watch has seen the move
