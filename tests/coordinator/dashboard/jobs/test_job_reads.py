"""What the page of one job reads, with whose rights and how often, and what happens to a page whose job goes."""

from typing import Any

import pytest

from coordinator.dashboard.jobs import reads
from coordinator.dashboard.jobs.log_tail import LogReaders
from coordinator.dashboard.jobs.reads import JobLoaded, JobReads
from coordinator.dashboard.loads import Loads
from coordinator.dashboard.visitors import Visitor
from coordinator.query.questions import ANOTHER, UnknownObject
from crds.api_resources import EVENTS, PODS
from kube import errors
from tests.coordinator.dashboard.jobs.scene import CREATED, NOW, FakeCluster, FakeQueries, job, visitor
from tests.coordinator.dashboard.jobs.test_log_tail import Following
from tests.support.clock import Clock

ADMITTED = {"phase": "Running", "admission": {"attempt": 1, "admittedAt": CREATED, "epoch": 1}}
ADDRESS = {"namespace": "team", "name": "train"}
PLACE = {
    "state": "waiting", "job": "team/train", "queue": "team", "position": 2, "of": 5, "code": "WaitingForPool",
    "message": "no room", "holders": [{"job": "secret/x", "uid": "u", "queue": "q", "charge": {"cpu": 1}}],
}  # fmt: skip


class Pages:
    """The pages of one visitor, and a clock."""

    def __init__(self, cluster: FakeCluster, *namespaces: str, **answers: Any) -> None:
        self.clock, self.cluster, self.following = Clock(), cluster, Following()
        self.visitor: Visitor = visitor(cluster, answers.get("queries"), answers.get("history"), *namespaces)
        self.reads = JobReads(lambda: NOW, LogReaders(self.following, self.clock))
        for name in ("_jobs", "_uids"):
            setattr(self.reads, name, Loads(reads.EVERY_SECONDS, clock=self.clock))

    def load(self, **parameters: str) -> JobLoaded:
        """Load the page after some seconds."""
        self.clock.step(reads.EVERY_SECONDS + 1)
        return self.reads.load(self.visitor, {**ADDRESS, **parameters})


def test_a_job_and_what_is_around_it_are_read_once_in_two_seconds() -> None:
    pages = Pages(FakeCluster(job(status=ADMITTED)))
    for _ in range(10):
        pages.reads.load(pages.visitor, ADDRESS)
    assert (pages.cluster.count(PODS), pages.cluster.count(EVENTS)) == (1, 1)
    assert pages.cluster.count() == 2  # once for the uid of the address, once for the job
    pages.load()
    assert pages.cluster.count(PODS) == 2


def test_a_job_of_a_namespace_that_the_visitor_may_not_list_is_not_there_and_not_asked_for() -> None:
    pages = Pages(FakeCluster(job()), "other")
    with pytest.raises(UnknownObject, match="there is no job team/train"):
        pages.load()
    assert pages.cluster.asked == []


def test_an_answer_about_a_place_names_no_job_that_the_visitor_may_not_read() -> None:
    pages = Pages(FakeCluster(job(status={"phase": "Queued"})), "team", queries=FakeQueries(PLACE))
    (holder,) = (pages.load().known.place or {})["holders"]
    assert (holder["job"], holder["queue"]) == (ANOTHER, "")


def test_a_part_that_may_not_be_read_is_named_and_the_rest_is_read() -> None:
    cluster = FakeCluster(job(status=ADMITTED))
    cluster.failing["pods"] = errors.Forbidden("you may not list pods")
    found = Pages(cluster).load()
    assert found.problems == {"pods and events": "you may not list pods"}
    assert found.item is not None
    waiting = Pages(FakeCluster(job(status={"phase": "Queued"}))).load()
    assert waiting.problems == {"coordinator": "no coordinator answers"}
    assert waiting.known.place == {"state": "absent"}


def test_a_job_that_the_api_server_does_not_show_is_said_and_shown_again_later() -> None:
    cluster = FakeCluster(job())
    pages = Pages(cluster)
    cluster.failing["torchjobs"] = errors.Unreachable("the API server is away")
    assert (pages.load().item, pages.load().problems) == (None, {"job": "the API server is away"})
    del cluster.failing["torchjobs"]
    shown = pages.load()
    assert (shown.uid, shown.problems.get("job")) == ("uid-train", None)
    cluster.failing["torchjobs"] = errors.Unreachable("away again")
    lost = pages.load(uid=shown.uid)
    assert (lost.item, lost.problems) == (shown.item, {"job": "away again"})


def test_a_page_stays_when_its_job_is_deleted_and_knows_the_one_that_replaces_it() -> None:
    cluster = FakeCluster(job(status=ADMITTED))
    pages = Pages(cluster)
    shown = pages.load()
    own = {"uid": shown.uid}
    del cluster.jobs["train"]
    assert (pages.load(**own).gone, pages.load(**own).item) == ("deleted", shown.item)
    later = job()
    later["metadata"]["uid"] = "another"
    cluster.jobs["train"] = later
    assert (pages.load(**own).gone, pages.load(**own).item) == ("replaced", shown.item)
    assert pages.load().uid == "another"


def test_a_job_that_nobody_knows_is_not_there_and_one_of_the_history_is_shown() -> None:
    with pytest.raises(errors.NotFound):
        Pages(FakeCluster()).load(uid="long-gone")
    told = {"name": "train", "uid": "long-gone"}
    asked: list[str] = []

    def fetch(path: str, _namespace: str) -> Any:
        asked.append(path)
        return told

    pages = Pages(FakeCluster(), history=fetch)
    assert (pages.load(uid="long-gone").past, pages.load(uid="long-gone").gone) == (told, "deleted")
    assert asked == ["/v1/history/team/train?uid=long-gone"]


def test_the_address_of_a_deleted_job_leads_to_the_newest_of_its_name() -> None:
    told = {"name": "train", "uid": "long-gone"}
    pages = Pages(FakeCluster(), history=lambda _path, _namespace: told)
    found = pages.load()
    assert (found.uid, found.past, found.gone) == ("long-gone", told, "deleted")
    pages.cluster.jobs["train"] = job()
    assert pages.load().uid == "uid-train"


def test_reports_that_come_while_the_page_is_open_become_points() -> None:
    queries = FakeQueries()
    pages = Pages(FakeCluster(job(status=ADMITTED)), queries=queries)
    found = pages.load()
    assert found.points == ()
    for step in (1, 1, 2, 3):
        pods = [{"pod": "a"}, {"pod": "b", "loss": 1 / step}]
        training = {"step": step, "reportedAt": f"2026-01-01T00:00:0{step}Z", "stepsPerSecond": 2.0, "pods": pods}
        found = JobLoaded("u", None, points=reads.with_report(found.points, training))
    assert [(each.step, each.loss) for each in found.points] == [(1, 1.0), (2, 0.5), (3, 1 / 3)]


@pytest.mark.parametrize(
    ("pod", "task", "index"),
    [("", "", 0), ("worker-3", "worker", 3), ("a-b-10", "a-b", 10), ("worker", "", 0), ("x-²", "x", 0), ("-1", "", 1)],
)
def test_the_address_chooses_the_pod_of_the_log(pod: str, task: str, index: int) -> None:
    found = reads.member({"pod": pod})
    assert (found.task, found.index, found.follow) == (task, index, True)


def test_the_log_is_that_of_the_chosen_pod_and_ends_with_the_job() -> None:
    pages = Pages(FakeCluster(job(status=ADMITTED)))
    uid = pages.load(pod="worker-2").uid
    del pages.cluster.jobs["train"]
    pages.load(uid=uid, pod="worker-2")
    assert [(each.task, each.index) for each in pages.following.begun] == [("worker", 2)]
