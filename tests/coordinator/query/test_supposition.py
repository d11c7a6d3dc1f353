"""The answers for a job that is not in the order of its queue, and for a job that can never run."""

from dataclasses import replace
from typing import Any

import pytest

from coordinator.cache.job_waits import WaitState
from coordinator.cache.routing_rules import RoutingRules
from coordinator.cache.views import JobView
from coordinator.cache.worker_counts import WantedGrowth, WorkerCounts
from coordinator.query import supposition
from coordinator.query.questions import Document
from coordinator.routing.eligibility import Eligibility
from coordinator.routing.feasibility import ClusterLimits
from coordinator.wording import explanations as cli_text
from coordinator.wording import job_growth
from crds.tenantqueue import TenantQueueSpec
from queues.values import Entry, QueueSpec
from tests.coordinator.query.test_documents import manifest
from tests.support.coordinator.builders import admission, job, node

QUEUE = QueueSpec(name="a", quota={"cpu": 4000})
KNOWN = ClusterLimits(
    rules=RoutingRules(queues={"a": TenantQueueSpec()}, implicit=False),
    specs={"a": QUEUE},
    setting="nodes",
    nodes=(node(embedded=True),),
)
FITS = {"fits": True, "code": "Next", "message": "the job goes with queue a's next turn", "numbers": "needs 2 cpu"}


def read(*answers: Document) -> Any:
    """Return a function that gives the queues' answers, and the list of entries for which it was called."""
    asked: list[Entry] = []

    def reading(entry: Entry) -> Document:
        asked.append(entry)
        return dict(answers[0])

    return reading, asked


@pytest.mark.parametrize(
    "out_of_order",
    [
        {"suspended": True, "phase": "Suspended"},
        {"held": True},
        {"waits": WaitState(queue="a", parked=True, dated=True)},
        {"waits": WaitState(queue="a", until=2e9)},
    ],
)
def test_a_job_is_judged_as_if_it_were_resumed(out_of_order: dict[str, Any]) -> None:
    reading, asked = read(FITS)
    assert supposition.describe_if_resumed(job(**out_of_order), KNOWN, reading) == FITS
    (entry,) = asked
    assert (entry.queue, entry.demand) == ("a", {"cpu": 2000, "jobs": 1})


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"charge": {"cpu": 5000, "jobs": 1}}, "ExceedsQuota", "queue a can give 4 at most"),
        ({"charge": {"cpu": 1, "gpu": 1, "jobs": 1}}, "ExceedsQuota", "all nodes together have 0"),
        ({"queue": "nobody"}, "QueueNotFound", "there is no TenantQueue nobody"),
        ({"priority_class": "gold"}, "PriorityClassNotFound", "there is no PriorityClass gold"),
    ],
)
def test_a_job_that_can_never_run_needs_no_query_of_the_queues(changes: dict[str, Any], code: str, words: str) -> None:
    reading, asked = read(FITS)
    document = supposition.describe_if_resumed(job(suspended=True, **changes), KNOWN, reading)
    assert (document["fits"], document["code"], asked) == (False, code, [])
    assert words in document["message"]


def test_room_missing_while_a_node_is_not_ready_counts_as_temporary() -> None:
    reading, _ = read({"fits": False, "code": "ExceedsQuota", "message": "more than can ever be", "numbers": "n"})
    assert supposition.describe_if_resumed(job(suspended=True), KNOWN, reading)["code"] == "WaitingForPool"
    assert supposition.describe_too_large(job(), KNOWN)["code"] == "WaitingForPool"
    said = supposition.describe_too_large(job(charge={"cpu": 5000, "jobs": 1}), KNOWN)
    assert said.keys() == {"message"}
    assert "queue a can give 4 at most" in said["message"]


def test_room_missing_while_nodes_are_cordoned_names_them() -> None:
    nodes = (node(), *(replace(node(), name=name, ready=False, cordoned=True) for name in ("b", "a")))
    limits = replace(KNOWN, nodes=nodes)
    closed = "cordoned: a, b (2 of 3 nodes; kubectl uncordon)"
    assert supposition.describe_too_large(job(), limits)["message"].endswith(f"; {closed}")
    for code, words in (("WaitingForPool", {"message": f"no room; {closed}"}), ("WaitingForQuota", {})):
        assert supposition.describe_room({"code": code, "message": "no room"}, job(), limits) == words
    assert supposition.describe_room({"code": "WaitingForPool", "message": "no room"}, job(), KNOWN) == {}


def test_an_invalid_job_is_not_reported_as_new() -> None:
    assert supposition.describe_unqueued(job(invalid=True), Eligibility())["code"] == "Invalid"
    assert supposition.describe_unqueued(job(), Eligibility()) == {}
    assert supposition.describe_unqueued(job(), Eligibility("Held", "held", ordered=False)) == {
        "code": "Held",
        "message": "held",
    }


SUSPENDED = manifest({"phase": "Suspended"}, suspend=True)


@pytest.mark.parametrize(
    ("would", "lines"),
    [
        (FITS, ["  if it were resumed now, it would fit: the job goes with queue a's next turn", "  needs 2 cpu"]),
        (
            {"fits": False, "code": "WaitingForQuota", "message": "no quota left", "numbers": ""},
            ["  if it were resumed now, it would wait: WaitingForQuota: no quota left"],
        ),
        (
            {"fits": False, "code": "ExceedsQuota", "message": "12 of gpu"},
            ["  if it were resumed now, it could never run: ExceedsQuota: 12 of gpu"],
        ),
        ({"unknown": "no answer"}, ["  whether it would fit now is not known: no answer"]),
        (None, []),
    ],
)
def test_why_prints_whether_a_suspended_job_would_run(would: Document | None, lines: list[str]) -> None:
    document = cli_text.describe_settled(SUSPENDED, if_resumed=would)
    assert cli_text.format_why(document).splitlines()[2:] == lines


def test_why_prints_the_result_of_a_try_for_a_job_in_back_off() -> None:
    item = manifest({"queue": {"reason": "BackingOff", "message": "later", "notBefore": "2026-01-01T01:00:00Z"}})
    place = {"state": "absent", "job": "team/train", "uid": "u1", "ifResumed": FITS}
    lines = cli_text.format_why(cli_text.describe_waiting(item, place)).splitlines()
    assert lines[-2] == "  if it were tried again now, it would fit: the job goes with queue a's next turn"
    assert "  not before 2026-01-01T01:00:00Z" in lines


def test_a_job_that_can_never_run_is_given_no_pick() -> None:
    place = {
        "state": "waiting", "job": "team/train", "uid": "u1", "position": 1, "of": 2, "queue": "a",
        "nextPick": None, "pickWithRoom": 1, "code": "ExceedsQuota", "message": "too much", "numbers": "",
    }  # fmt: skip
    for said in (cli_text.format_why, cli_text.format_position):
        text = said(cli_text.describe_waiting(manifest(), place))
        assert "number 1 of 2 in queue a, not picked until that changes" in text
        assert "once the pool has room" not in text


def growing(to: int, **changes: Any) -> JobView:
    """Return a job of queue a that has 2 workers of 1 CPU."""
    counts = WorkerCounts(1, to, 1, {"cpu": 1000, "jobs": 1}, {"cpu": 1000}, WantedGrowth(to, 100.0))
    return job(admission=admission(workers=2), workers=counts, phase="Running", **changes)


def rest(wanted: JobView, **held: Any) -> Document:
    return supposition.describe_rest(wanted, {"state": "admitted", "workers": 2, **held}, KNOWN, 1000.0)


def test_the_rest_of_the_workers_of_a_job_waits_for_a_reason() -> None:
    assert rest(job(admission=admission())) == {}
    found = rest(growing(3), growth={"code": "WaitingForQuota", "message": "none left", "position": 1})["rest"]
    assert found == {"granted": 2, "wanted": 3, "code": "WaitingForQuota", "message": "none left", "position": 1}
    assert rest(growing(3))["rest"]["code"] == "New"
    assert rest(growing(3), workers=3)["rest"]["code"] == "Granted"
    assert rest(growing(3, held=True))["rest"]["code"] == "Held"


@pytest.mark.parametrize(("cpu", "code"), [(2000, "ExceedsQuota"), (3000, "New")])
def test_workers_that_a_queue_can_never_give_exceed_its_quota(cpu: int, code: str) -> None:
    limits = replace(KNOWN, specs={"a": replace(QUEUE, quota={"cpu": cpu})})
    found = supposition.describe_rest(growing(6), {"workers": 2}, limits, 1000.0)["rest"]
    assert (found["granted"], found["wanted"], found["code"]) == (2, 6, code)
    assert ("asks for 6 of cpu, queue a can give 2 at most" in found["message"]) is (code == "ExceedsQuota")


def test_why_and_show_print_how_many_workers_wait() -> None:
    found = {"granted": 4, "wanted": 6, "code": "WaitingForQuota", "message": "none left", "numbers": "needs 1 cpu"}
    words = "4 of 6 workers; 2 more wait: WaitingForQuota (none left; needs 1 cpu)"
    assert job_growth.format_rest(found) == words
    document = cli_text.describe_settled(manifest({"phase": "Running", "admission": {"workers": 4}}))
    place = {"position": 1, "of": 2, "queue": "a", "nextPick": None, "pickWithRoom": 3}
    lines = cli_text.format_position(document | {"rest": found | place}).splitlines()
    assert lines[-2:] == [f"  {words}", "  number 1 of 2 in queue a, pick 3 once the pool has room"]


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        ({"scaling": {"to": 6}}, 6),
        ({"scaling": {"to": 6, "victims": ["train-worker-1"]}}, 4),
        ({"scaling": {"to": 2}}, 4),
        ({"scaling": {"to": 6}, "phase": "Succeeded"}, 4),
        ({}, 4),
    ],
)
def test_a_job_waits_for_the_workers_that_its_status_asks_for(status: dict[str, Any], wanted: int) -> None:
    found = job_growth.counts_of(manifest({"phase": "Running", "admission": {"workers": 4}, **status}))
    assert found == {"granted": 4, "wanted": wanted}
