"""Who sees what of a dashboard in the cluster, on a real API server: the accounts of two tenants, an admin's, and one
without rights, each with a token of its own; and what ends when a right or a token is taken away."""

import contextlib
import logging
from collections.abc import Iterator
from functools import partial
from typing import Any

import orjson
import pytest

from coordinator.access.readers import ACCOUNT, AUDIENCE, HEADER, TOKEN_SECONDS
from coordinator.access.shown_tokens import ShownTokens
from coordinator.access.token_reviews import TokenReviews
from coordinator.cli.dashboard import login_token as token_command
from coordinator.dashboard.access.logins import Logins
from coordinator.dashboard.access.rights import KEPT_SECONDS, ReviewPace
from coordinator.dashboard.access.visits import SeenNames, Visits
from coordinator.dashboard.readings import Reading
from coordinator.errors import CoordinatorError
from coordinator.http.bounded_server import Question
from coordinator.http.history_api import HistoryApi
from coordinator.query.questions import ANOTHER, Document, UnknownObject
from coordinator.query.remote_queries import Fetch
from coordinator.rbac import account_manifests
from coordinator.rbac.account_manifests import Tenant
from coordinator.rbac.permissions import RECORDER, USER
from coordinator.runs import submitter
from coordinator.settings import Settings
from crds.api_resources import EVENTS, TENANT_QUEUES, TORCHJOBS
from crds.keys import JobKey
from kube import client, errors
from kube.client import KubernetesCluster
from kube.settings import ConnectionSettings, RetrySettings
from tests.rbac import test_history_readers
from tests.support.clock import Clock
from tests.support.coordinator import dashboard_site
from tests.support.coordinator.dashboard_site import Browser, FixedReadings, messages, secret_of
from tests.support.coordinator.desk import manifest, remove
from tests.support.rbac import access
from tests.support.rbac.access import TENANT, Granted
from tests.support.waiting import until

pytestmark = pytest.mark.apiserver
OTHER = "team-b"
SECONDS = 7200


def job(namespace: str) -> Document:
    """Return a job as a watch shows it."""
    metadata = {"name": f"job-of-{namespace}", "namespace": namespace, "uid": f"uid-of-{namespace}"}
    metadata |= {"creationTimestamp": "2026-01-01T00:00:00Z"}
    return {
        "metadata": metadata,
        "spec": {"schedulingPolicy": {"queue": namespace}, "torchTaskSpecs": {}},
        "status": {},
    }


def queue(name: str) -> Document:
    status = {"first": f"{name}/job-of-{name}", "pending": 1, "admitted": 0, "oldestWaitSeconds": 1.0}
    return {"metadata": {"name": name}, "spec": {"weight": 1}, "status": status}


class Coordinator:
    """The answers to the dashboard's own token, which name everything."""

    def queues(self) -> list[Document]:
        return [*map(queue, (TENANT, OTHER))]

    def queue(self, name: str) -> Document:
        return queue(name)

    def next(self, count: int, *, roomy: bool = False) -> Document:  # noqa: ARG002
        picks = [
            {"pick": number, "job": f"{team}/job-of-{team}", "uid": f"uid-of-{team}", "queue": team, "waitSeconds": 1.0}
            for number, team in enumerate((TENANT, OTHER), 1)
        ]
        return {"items": picks, "pool": {"capacity": None, "used": {}}}

    def places(self, queues: Any) -> list[Document]:
        place = {"position": 1, "of": 1}
        return [{"job": f"{team}/job-of-{team}", "uid": f"uid-of-{team}", "queue": team, **place} for team in queues]

    def job(self, key: JobKey) -> Document:
        holder = {"job": f"{OTHER}/job-of-{OTHER}", "uid": f"uid-of-{OTHER}", "queue": OTHER}
        return {"state": "waiting", "job": f"{key.namespace}/{key.name}", "holders": [holder]}

    def reports(self, key: JobKey) -> Document:
        return {"pods": [key.name]}

    def status(self) -> Document:
        return {}


class Site:
    """A dashboard with its logins on a real API server. The clock of answers about rights is stepped."""

    def __init__(self, granted: Granted, clock: Clock, readings: FixedReadings, visits: Visits) -> None:
        settings = ConnectionSettings(kubeconfig=str(granted.server.kubeconfig), retries=RetrySettings(attempts=2))
        self.granted, self.clock, self.readings = granted, clock, readings
        self.connect_as = client.connect_others(settings)
        self.logins = Logins(self.connect_as, visits.make, clock)
        self.port = 0

    def token(self, namespace: str, account: str) -> str:
        return self.granted.admin.issue_token(namespace, account, "", SECONDS)[0]

    def browser(self, token: str) -> Browser:
        """Return a browser that has logged in."""
        browser = Browser(self.port)
        answer = browser.post("/login", {"token": token, "next": "/"})
        assert answer.code == 303, answer.text
        return browser


@pytest.fixture(scope="module")
def tenants(granted: Granted) -> Granted:
    access.apply(granted.server, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OTHER}})
    for document in account_manifests.tenant_manifests(Tenant(namespace=OTHER)):
        access.apply(granted.server, document)
    for name in ("nobody", "short-lived", "admin"):
        metadata = {"name": name, "namespace": TENANT}
        access.apply(granted.server, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    subject = {"kind": "ServiceAccount", "name": "admin", "namespace": TENANT}
    role = {"apiGroup": access.ACCESS, "kind": "ClusterRole", "name": "cluster-admin"}
    binding = {
        "apiVersion": f"{access.ACCESS}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "dashboard-admin"},
    }
    access.apply(granted.server, binding | {"roleRef": role, "subjects": [subject]})
    return granted


def recorder(granted: Granted, tokens: ShownTokens) -> Fetch:
    """Return access to a recorder whose history has a job of each tenant."""
    reviews = TokenReviews(granted.cluster(RECORDER))
    api = HistoryApi(test_history_readers.history, reviews, Settings(), lambda: test_history_readers.START + SECONDS)

    def fetch(path: str, namespace: str = "") -> Any:
        token = tokens.headers(account_manifests.SYSTEM_NAMESPACE, namespace).get(HEADER, "")
        answer = api.answer(Question(path, "127.0.0.1", token=token))
        if answer.code != 200:
            raise CoordinatorError(orjson.loads(answer.body)["message"])
        return orjson.loads(answer.body)

    return fetch


@pytest.fixture
def site(tenants: Granted) -> Iterator[Site]:
    coordinator, clock = Coordinator(), Clock()
    answer = coordinator.next(2)
    readings = FixedReadings(
        Reading(number=1, at=1_767_225_600.0, jobs=(job(TENANT), job(OTHER)), jobs_version=1,
                queues=tuple(coordinator.queues()), upcoming=answer, in_order=answer)
    )  # fmt: skip
    visits = Visits(
        SeenNames(readings),  # type: ignore[arg-type]
        lambda: coordinator,
        partial(recorder, tenants),
        may_act=True,
        pace=ReviewPace(clock),
        clock=clock,
    )
    made = Site(tenants, clock, readings, visits)
    with dashboard_site.running(made.logins, readings) as made.port:
        yield made


def names_of(team: str) -> tuple[str, ...]:
    return f"job-of-{team}", f"uid-of-{team}", team


def found_in(text: str, team: str) -> list[str]:
    return [name for name in names_of(team) if name in text]


PATHS = (
    "/",
    "/jobs",
    f"/jobs?namespace={OTHER}",
    "/usage",
    f"/queues/{OTHER}",
    f"/jobs/{OTHER}/job-of-{OTHER}",
    "/nowhere",
)


@pytest.mark.parametrize("path", PATHS)
def test_no_page_of_a_tenant_names_anything_of_the_other(site: Site, path: str) -> None:
    answer = site.browser(site.token(TENANT, ACCOUNT)).get(path)
    text = answer.text.replace(path.replace("&", "&amp;"), "") if OTHER in path else answer.text
    # What the visitor has put into the address or a filter itself comes back to the visitor alone.
    assert [name for name in found_in(text, OTHER) if name != OTHER or f"namespace={OTHER}" not in path] == []
    assert answer.code in (200, 404)


def test_each_sees_what_its_token_may_list(site: Site) -> None:
    own = site.browser(site.token(TENANT, ACCOUNT)).get("/")
    assert TENANT in own.text
    assert ANOTHER in own.text, "the place of the other's pick is told, and not whose it is"
    theirs = site.browser(site.token(OTHER, ACCOUNT)).get("/").text
    assert (found_in(theirs, OTHER) != [], f"job-of-{TENANT}" in theirs) == (True, False)
    everything = site.browser(site.token(TENANT, "admin")).get("/").text
    assert all(found_in(everything, team) for team in (TENANT, OTHER))
    nothing = site.browser(site.token(TENANT, "nobody")).get("/").text
    assert [f"job-of-{team}" in nothing for team in (TENANT, OTHER)] == [False, False]


def test_a_stream_of_a_tenant_names_nothing_of_the_other(site: Site) -> None:
    browser = site.browser(site.token(TENANT, ACCOUNT))
    secret = secret_of(browser.get("/").text)
    with browser.stream("/", secret) as stream:
        text = next(messages(stream)).decode()
    assert found_in(text, OTHER) == []
    assert TENANT in text


def test_what_is_asked_of_a_coordinator_for_a_visitor_passes_the_bounds(site: Site) -> None:
    browser = site.browser(site.token(TENANT, ACCOUNT))
    visitor = site.logins.find(browser.cookies, is_secure=False)
    assert visitor is not None
    queries = visitor.queries()
    why = queries.job(JobKey(TENANT, "train", "u"))
    assert why["holders"] == [{"job": ANOTHER, "uid": "", "queue": ""}]
    assert found_in(str([queries.queues(), queries.next(2), queries.places([TENANT, OTHER])]), OTHER) == []
    for ask in (queries.job, queries.reports):
        with pytest.raises(UnknownObject):
            ask(JobKey(OTHER, f"job-of-{OTHER}", "u"))
    with pytest.raises(UnknownObject):
        queries.queue(OTHER)
    with pytest.raises(errors.Forbidden):
        visitor.cluster.list(access.KINDS["ServiceAccount"], OTHER)


def test_the_history_of_a_namespace_is_told_to_those_who_may_list_its_jobs(site: Site) -> None:
    for account, seen in ((ACCOUNT, {TENANT}), ("nobody", set[str]()), ("admin", {TENANT})):
        browser = site.browser(site.token(TENANT, account))
        visitor = site.logins.find(browser.cookies, is_secure=False)
        assert visitor is not None
        told = set[str]()
        for team in (TENANT, OTHER):
            with contextlib.suppress(CoordinatorError):
                told |= {each["namespace"] for each in visitor.history().jobs({"namespace": team})["items"]}
        assert (account, told) == (account, seen | ({OTHER} if account == "admin" else set()))


def test_no_usage_of_a_tenant_names_anything_of_the_other(site: Site) -> None:
    span = "since=2026-01-01&until=2026-02-01&by=user"
    own = site.browser(site.token(TENANT, ACCOUNT)).get(f"/usage?{span}").text
    assert [f"user-of-{team}" in own for team in (TENANT, OTHER)] == [True, False]
    sheet = site.browser(site.token(OTHER, ACCOUNT)).get(f"/usage.csv?{span}").text
    assert [f"user-of-{team}" in sheet for team in (TENANT, OTHER)] == [False, True]
    everything = site.browser(site.token(TENANT, "admin")).get(f"/usage?{span}").text
    assert [f"user-of-{team}" in everything for team in (TENANT, OTHER)] == [True, True]


@contextlib.contextmanager
def without_list(site: Site) -> Iterator[None]:
    rule = next(
        rule for rule in USER.rules if rule.target == "torchjobs.train.distributed.io" or "torchjobs" in rule.target
    )
    with site.granted.without(USER, rule, "list"):
        yield


def test_a_right_that_is_taken_away_ends_what_an_open_page_shows(site: Site) -> None:
    browser = site.browser(site.token(TENANT, ACCOUNT))
    page = browser.get("/")
    with browser.stream("/", secret_of(page.text)) as stream:
        told = messages(stream)
        assert f"{TENANT}/job-of-{TENANT}" in next(told).decode()
        with without_list(site):
            site.clock.step(KEPT_SECONDS)
            site.readings.read()
            changed = orjson.loads(next(told).removeprefix(b"data: "))
            assert ANOTHER in str(changed)
            assert f"job-of-{TENANT}" not in str(changed)
            assert f"job-of-{TENANT}" not in browser.get("/").text
            assert browser.get(f"/jobs/{TENANT}/job-of-{TENANT}").code == 404


def test_a_token_that_is_taken_away_ends_the_stream_and_the_session(site: Site) -> None:
    token = site.token(TENANT, "short-lived")
    browser, owner = site.browser(token), site.connect_as(token)
    secret = secret_of(browser.get("/").text)
    with browser.stream("/", secret) as stream:
        told = messages(stream)
        next(told)
        remove(site.granted.admin, access.KINDS["ServiceAccount"], "short-lived", TENANT)
        until(lambda: is_refused(owner))
        site.clock.step(KEPT_SECONDS)
        site.readings.read()
        assert [line for line in told if line.startswith(b"event")] == [b"event: end"]
    assert len(site.logins) == 0
    assert 'action="/login"' in browser.get("/").text


def is_refused(cluster: KubernetesCluster) -> bool:
    """Return whether the API server takes the token of a client no more."""
    try:
        submitter.find(cluster)
    except errors.Unauthorized:
        return True
    return False


def test_a_token_for_another_audience_or_of_a_deleted_account_is_no_login(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    admin = site.granted.admin
    metadata = {"name": "gone", "namespace": TENANT}
    access.apply(site.granted.server, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    gone = site.token(TENANT, "gone")
    remove(admin, access.KINDS["ServiceAccount"], "gone", TENANT)
    good = site.token(TENANT, ACCOUNT)
    wrong = [admin.account_token(TENANT, ACCOUNT, AUDIENCE, TOKEN_SECONDS), gone, good[:-8] + "AAAAAAAA"]
    for token in wrong:
        until(lambda token=token: Browser(site.port).post("/login", {"token": token}).code == 403)  # type: ignore[misc]
    site.browser(good)
    assert [token for token in (good, *wrong) if token in caplog.text] == []
    assert len(site.logins) == 1


def test_the_api_server_decides_who_changes_what(site: Site) -> None:
    admin, name = site.granted.admin, "changed"
    body = {"apiVersion": TENANT_QUEUES.api_version, "kind": TENANT_QUEUES.kind, "metadata": {"name": TENANT}}
    admin.create(TENANT_QUEUES, body | {"spec": {}})
    jobs = {each: admin.create(TORCHJOBS, manifest(name, TENANT), each)["metadata"] for each in (TENANT, OTHER)}
    own, foreign = ({"namespace": each, "uid": jobs[each]["uid"]} for each in (TENANT, OTHER))
    try:
        browser = site.browser(site.token(TENANT, ACCOUNT))
        page = browser.get(f"/jobs/{TENANT}/{name}").text
        assert "verb=cancel" in page
        fields = {"kind": "job", "verb": "cancel", "name": name, "secret": secret_of(page)}
        done = browser.post("/act", {**fields, **own, "reason": "a try"})
        assert (done.code, f"job {TENANT}/{name} cancelled" in done.text) == (200, True)
        assert admin.get(TORCHJOBS, name, TENANT)["spec"]["cancel"]
        [event] = [each for each in admin.list(EVENTS, TENANT).items if each["involvedObject"]["name"] == name]
        assert event["message"].endswith(f"by system:serviceaccount:{TENANT}:{ACCOUNT}: a try")
        assert browser.post("/act", {**fields, **foreign}).code == 404
        assert not admin.get(TORCHJOBS, name, OTHER)["spec"].get("cancel")
        queue = {"kind": "queue", "verb": "pause", "name": TENANT, "secret": fields["secret"]}
        refused = browser.post("/act", queue)
        assert (refused.code, "Not done" in refused.text) == (403, True)
        assert "tenantqueues" in refused.text
        assert "verb=pause" not in browser.get(f"/queues/{TENANT}").text
        assert "verb=pause" in site.browser(site.token(TENANT, "admin")).get(f"/queues/{TENANT}").text
    finally:
        remove(admin, TENANT_QUEUES, TENANT, "")
        for namespace in (TENANT, OTHER):
            remove(admin, TORCHJOBS, name, namespace)


def test_the_command_prints_a_token_that_logs_in_as_the_account_of_the_namespace(site: Site) -> None:
    assert token_command.SECONDS == 8 * 3600
    browser = site.browser(site.token(OTHER, ACCOUNT))
    assert f"system:serviceaccount:{OTHER}:{ACCOUNT}" in browser.get("/").text
