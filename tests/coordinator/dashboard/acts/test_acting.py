"""Changes from pages, on an API server: what is asked before, what is changed, and what is refused in words."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from coordinator.access.readers import EVERYWHERE
from coordinator.dashboard.access.rights import ReviewPace, Rights
from coordinator.dashboard.acts import acting
from coordinator.dashboard.acts.acting import NotAsked
from coordinator.dashboard.pages import act as act_page
from coordinator.dashboard.visitors import OneVisitor, Visitor
from coordinator.query.bounds import Bounds
from crds.api_resources import EVENTS, TENANT_QUEUES, TORCHJOBS
from kube import errors
from kube.api import Manifest
from kube.client import KubernetesCluster
from tests.support.coordinator import dashboard_site
from tests.support.coordinator.dashboard_site import Browser, FixedReadings, secret_of
from tests.support.coordinator.desk import manifest, remove

QUEUE = "acted-on"


class Coordinator:
    """Answers about one queue, whose first job is another one."""

    def queue(self, name: str) -> Any:
        status = {"first": "elsewhere/first", "firstScore": 1.0}
        return {"metadata": {"name": name}, "spec": {"agingSeconds": 3600.0}, "status": status}

    def places(self, _queues: Any) -> list[Any]:
        return []


def visitor(cluster: KubernetesCluster, *, may_act: bool = True) -> Visitor:
    nothing: Any = lambda *_: None  # noqa: E731
    everything = Bounds(EVERYWHERE, lambda _: True, lambda _: True)
    may = Rights(cluster, "", ReviewPace()).may
    queries: Any = Coordinator
    return Visitor("ann", cluster, queries, nothing, lambda _: everything, may_act=may_act, may=may)


@pytest.fixture
def job(embedded_cluster: KubernetesCluster, namespace: str) -> Manifest:
    return embedded_cluster.create(TORCHJOBS, manifest("train", QUEUE), namespace)


@pytest.fixture
def queue(embedded_cluster: KubernetesCluster) -> Iterator[str]:
    body = {
        "apiVersion": TENANT_QUEUES.api_version,
        "kind": TENANT_QUEUES.kind,
        "metadata": {"name": QUEUE},
        "spec": {},
    }
    embedded_cluster.create(TENANT_QUEUES, body)
    yield QUEUE
    remove(embedded_cluster, TENANT_QUEUES, QUEUE, "")


@pytest.fixture
def site(embedded_cluster: KubernetesCluster) -> Iterator[Browser]:
    visitors = OneVisitor(visitor(embedded_cluster))
    with dashboard_site.running(visitors, FixedReadings()) as port:
        browser = Browser(port)
        assert browser.get(f"/open?code={visitors.code}").code == 303
        yield browser


def fields_of(job: Manifest, verb: str, **more: str) -> dict[str, str]:
    metadata = job["metadata"]
    return {
        "kind": "job",
        "verb": verb,
        "namespace": metadata["namespace"],
        "name": "train",
        "uid": metadata["uid"],
        **more,
    }


def act(who: Visitor, fields: dict[str, str]) -> list[str]:
    return acting.act(who, acting.target(fields), fields)


@pytest.mark.parametrize(
    ("verb", "spec", "said"),
    [("hold", {"schedulingPolicy": {"hold": True}}, "held"), ("suspend", {"suspend": True}, "suspended"),
     ("cancel", {"cancel": True}, "cancelled"), ("resume", {"suspend": False}, "resumed")],
)  # fmt: skip
def test_a_change_of_a_job_reaches_the_job_and_its_event_names_who_and_why(
    embedded_cluster: KubernetesCluster, job: Manifest, verb: str, spec: Manifest, said: str
) -> None:
    found = act(visitor(embedded_cluster), fields_of(job, verb, reason=" wrong\n data "))
    namespace = job["metadata"]["namespace"]
    assert found == [f"job {namespace}/train {said}"]
    after = embedded_cluster.get(TORCHJOBS, "train", namespace)["spec"]
    for name, value in spec.items():
        assert after[name] == (after[name] | value if isinstance(value, dict) else value)
    [event] = embedded_cluster.list(EVENTS, namespace).items
    assert event["message"] == f"job {namespace}/train {said}, by ann: wrong data"


def test_a_bump_asks_a_coordinator_who_is_first(embedded_cluster: KubernetesCluster, job: Manifest) -> None:
    [first, *_] = act(visitor(embedded_cluster), fields_of(job, "bump"))
    assert "bumped in queue acted-on to priority" in first
    after = embedded_cluster.get(TORCHJOBS, "train", job["metadata"]["namespace"])
    assert after["spec"]["schedulingPolicy"]["priority"] > 0


def test_a_queue_gets_a_weight_is_paused_and_resumed(embedded_cluster: KubernetesCluster, queue: str) -> None:
    who = visitor(embedded_cluster)
    fields = {"kind": "queue", "name": queue}
    assert act(who, fields | {"verb": "weight", "weight": "7"}) == [f"queue {queue}: weight 7"]
    act(who, fields | {"verb": "pause"})
    assert embedded_cluster.get(TENANT_QUEUES, queue)["spec"]["stopPolicy"] == "Hold"
    act(who, fields | {"verb": "resume"})
    spec = embedded_cluster.get(TENANT_QUEUES, queue)["spec"]
    assert (spec["stopPolicy"], spec["weight"]) == ("None", 7)


@pytest.mark.parametrize("weight", ["", "-1", "1.5", "x", "٣", "9" * 99])
def test_a_weight_that_is_no_number_changes_nothing(
    embedded_cluster: KubernetesCluster, queue: str, weight: str
) -> None:
    with pytest.raises(NotAsked, match="weight"):
        act(visitor(embedded_cluster), {"kind": "queue", "name": queue, "verb": "weight", "weight": weight})


def test_another_job_of_the_same_name_is_never_touched(embedded_cluster: KubernetesCluster, job: Manifest) -> None:
    with pytest.raises(errors.NotFound, match="another job now"):
        act(visitor(embedded_cluster), fields_of(job, "cancel", uid="u-of-another"))
    assert not embedded_cluster.get(TORCHJOBS, "train", job["metadata"]["namespace"])["spec"].get("cancel")


def test_a_question_names_the_job_that_is_there_and_no_change_is_made_without_its_uid(
    embedded_cluster: KubernetesCluster, job: Manifest
) -> None:
    fields, who = fields_of(job, "cancel", uid=""), visitor(embedded_cluster)
    assert act_page.load(who, fields).target.uid == job["metadata"]["uid"]
    with pytest.raises(NotAsked, match="which job"):
        act(who, fields)
    assert not embedded_cluster.get(TORCHJOBS, "train", job["metadata"]["namespace"])["spec"].get("cancel")


def test_where_actions_are_off_nothing_is_asked_and_nothing_done(
    embedded_cluster: KubernetesCluster, job: Manifest
) -> None:
    with pytest.raises(NotAsked, match=r"dashboard\.actions"):
        act(visitor(embedded_cluster, may_act=False), fields_of(job, "cancel"))


@pytest.mark.parametrize(
    "fields",
    [{}, {"kind": "job", "verb": "cancel"}, {"kind": "job", "verb": "cancel", "name": "a"},
     {"kind": "pod", "name": "a"}, {"kind": "queue", "verb": "cancel", "name": "a"},
     {"kind": "job", "verb": "weight", "name": "a", "namespace": "b"}],
)  # fmt: skip
def test_what_is_no_change_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(NotAsked):
        acting.target(fields)


def test_the_page_asks_again_and_a_form_without_the_value_of_the_page_changes_nothing(
    site: Browser, embedded_cluster: KubernetesCluster, job: Manifest
) -> None:
    namespace = job["metadata"]["namespace"]
    page = site.get(f"/jobs/{namespace}/train")
    assert page.text.count('href="/act?verb=') == 4
    link = page.text.partition('href="/act?verb=cancel')[2].partition('"')[0].replace("&amp;", "&")
    question = site.get(f"/act?verb=cancel{link}")
    assert f"Cancel: job {namespace}/train?" in question.text
    assert 'data-page=""' in question.text, "a question opens no stream"
    fields, secret = fields_of(job, "cancel"), secret_of(question.text)
    for wrong in ({}, {"secret": "wrong"}):
        assert site.post("/act", {**fields, **wrong}).code == 403
    assert site.post("/act", {**fields, "secret": secret}, Origin="http://evil.example").code == 403
    assert not embedded_cluster.get(TORCHJOBS, "train", namespace)["spec"].get("cancel")
    done = site.post("/act", {**fields, "secret": secret})
    assert (done.code, f"job {namespace}/train cancelled" in done.text) == (200, True)
    assert embedded_cluster.get(TORCHJOBS, "train", namespace)["spec"]["cancel"]


def test_a_refusal_is_told_in_words_with_a_way_back(site: Browser, job: Manifest) -> None:
    secret = secret_of(site.get("/").text)
    said = site.post("/act", {**fields_of(job, "hold", name="gone<b>"), "secret": secret})
    assert (said.code, "Not done" in said.text, "<b>x" in said.text) == (404, True, False)
    assert f'href="/jobs/{job["metadata"]["namespace"]}/gone%3Cb%3E"' in said.text
    assert site.post("/act", {"secret": secret}).code == 400
    assert site.get("/act?verb=cancel&kind=job&name=train&namespace=nowhere").code == 404
    assert site.get("/act").code == 400


def test_a_button_that_the_visitor_may_not_press_is_not_there(
    embedded_cluster: KubernetesCluster, job: Manifest
) -> None:
    visitors = OneVisitor(replace(visitor(embedded_cluster), may=lambda _: False))
    with dashboard_site.running(visitors, FixedReadings()) as port:
        browser = Browser(port)
        browser.get(f"/open?code={visitors.code}")
        page = browser.get(f"/jobs/{job['metadata']['namespace']}/train")
    assert (page.code, "/act?" in page.text) == (200, False)
