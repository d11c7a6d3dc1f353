"""The documents that a snapshot yields: figures of queues, predicted picks, the place of a job, and the sentences about
each of these.
"""

from dataclasses import replace
from typing import Any

import pytest

from coordinator.cli.commands import status
from coordinator.query import documents, figures, scale_plan
from coordinator.query.queries import StoreQueries
from coordinator.query.questions import UnknownObject
from coordinator.wording import explanations as cli_text
from coordinator.wording import queue_columns as columns
from coordinator.wording import system_health
from queues.picking.explain import ScarceRoom
from queues.resizing.values import Kept, Plan
from queues.rules import PickRules
from queues.storage.stats import QueueStats
from tests.doubles.memory_store import MemoryStore
from tests.support.queues.builders import GPU, START, choose, commit, entries, entry, further, key, reservation, spec
from tests.support.queues.elastic_scene import elastic

NOW = START + 100
VITALS = QueueStats(at=NOW, epoch=3, picks=10, runs=20, ready=1, delayed=2, leased=3, waiting=4, admitted=5)


class Store(MemoryStore):
    """A store that counts its snapshots."""

    snapshots = 0

    def snapshot(self, *arguments: Any, **options: Any) -> Any:
        self.snapshots += 1
        return super().snapshot(*arguments, **options)


def opened(*specs: Any, pool: dict[str, int] | None = None, held: Any = (), waiting: Any = ()) -> Store:
    store = Store(lambda *_: None)
    store.rebuild(1, held, waiting)
    store.configure(specs, pool)
    return store


def reading(store: Store, cost: str = "jobs", now: float = NOW, **policies: str) -> StoreQueries:
    return StoreQueries(store, lambda: VITALS, PickRules(cost=cost), lambda: policies, lambda: now)


def test_queue_figures_show_share_target_and_oldest_wait() -> None:
    held = [reservation("x", "a", cpu=2000), reservation("y", "a", cpu=2000), reservation("z", "b", cpu=8000)]
    store = opened(
        spec("a", 3, cpu=8000), spec("b", 1), spec("idle", 5), held=held, waiting=[entry("w", "a", START + 40)]
    )
    a, b, idle = reading(store).queues()
    assert a["status"] | {"lag": None} == {
        "pending": 1,
        "admitted": 2,
        "usage": {"cpu": "4", "jobs": "2"},
        "share": "66%",
        "target": "75%",
        "lag": None,
        "oldestWaitSeconds": 60.0,
        "first": "team/w",
        "firstScore": START + 40,
    }
    assert (b["status"]["share"], b["status"]["target"], b["status"]["first"]) == ("33%", "25%", None)
    assert (idle["status"]["share"], idle["status"]["target"]) == ("0%", "0%")
    assert a["spec"]["quota"] == {"cpu": "8"}
    assert columns.usage(a) == "cpu=4/8,jobs=2"


def test_shares_count_the_resource_of_the_cost_setting() -> None:
    store = opened(spec("a"), spec("b"), held=[reservation("x", "a", gpu=1), reservation("y", "b", gpu=3)])
    assert [each["status"]["share"] for each in reading(store, cost="nvidia.com/gpu").queues()] == ["25%", "75%"]
    store.configure([spec("a"), spec("b")], {"nvidia.com/gpu": 30, "pods": 10})
    store.rebuild(2, [reservation("x", "a", gpu=1, pods=3), reservation("y", "b", gpu=3, pods=1)], [])
    assert [each["status"]["share"] for each in reading(store, cost="dominant").queues()] == ["75%", "25%"]


def test_a_pick_leaves_its_queue_ahead_and_the_other_queue_behind() -> None:
    store = opened(spec("a"), spec("b"), waiting=[*entries("a", 3), *entries("b", 3)])
    assert [each["status"]["lag"] for each in reading(store).queues()] == [None, None]
    found = reading(store)
    picked = found.next(1)["items"][0]["queue"]
    assert commit(store, choose(store.snapshot(8), NOW, 1, "jobs")).refused == ""
    lags = {each["metadata"]["name"]: each["status"]["lag"] for each in reading(store).queues()}
    other = "b" if picked == "a" else "a"
    assert (lags[picked], lags[other]) == (-0.5, 0.5)


def test_lags_stay_small_and_sum_to_zero_when_a_queue_joins() -> None:
    rules = PickRules(cost="jobs")
    store = opened(spec("a", 3), spec("b", 1), spec("c", 2), waiting=[*entries("a", 30), *entries("b", 2)])
    for round_ in range(12):
        if round_ == 5:
            store.put(entries("c", 30))
        assert commit(store, choose(store.snapshot(30), NOW, 1, rules)).refused == ""
        lags = [each["status"]["lag"] for each in StoreQueries(store, lambda: VITALS, rules).queues()]
        assert all(abs(lag) <= 1.0 for lag in lags), lags
        assert abs(sum(lags)) < 1.0


@pytest.mark.parametrize(("policies", "state"), [({}, "Hold"), ({"a": "HoldAndDrain"}, "HoldAndDrain")])
def test_queue_state_shows_the_stop_policy_if_known_and_hold_otherwise(policies: dict[str, str], state: str) -> None:
    store = opened(replace(spec("a"), open=False))
    (found,) = reading(store, **policies).queues()
    assert columns.queue_state(found) == state


def test_predicted_picks_follow_the_weights_and_change_nothing() -> None:
    store = opened(spec("a", 5), spec("b"), spec("c"), waiting=[*entries("a", 9), *entries("b", 9), *entries("c", 9)])
    before = store.snapshot(8)
    foretold = [each["queue"] for each in reading(store).next(7)["items"]]
    assert "".join(foretold) == "aabacaa"
    assert store.snapshot(8) == before  # the prediction changed nothing


def test_predicted_pick_shows_what_the_job_takes() -> None:
    ranged = further(entry("job", gpu=2), most=9, gpu=2)
    (found,) = reading(opened(spec("a", gpu=7), waiting=[ranged])).next(5)["items"]
    assert found["demand"] == {GPU: "6", "jobs": "1"}


def test_a_full_pool_predicts_no_pick_and_still_shows_the_order() -> None:
    store = opened(
        spec("a"), pool={"cpu": 1000}, held=[reservation("x", "a", cpu=1000)], waiting=entries("a", 2, cpu=1)
    )
    found = reading(store)
    assert found.next(5) == {
        "items": [],
        "pool": {"capacity": {"cpu": "1"}, "used": {"cpu": "1", "jobs": "1"}},
        "waiting": 2,
    }
    assert [each["job"] for each in found.next(5, roomy=True)["items"]] == ["team/a-0000", "team/a-0001"]


def test_a_waiting_job_shows_its_position_and_reason() -> None:
    store = opened(spec("a", 1, gpu=24), held=[reservation("x", "a", gpu=21)], waiting=entries("a", 3, gpu=8))
    found = reading(store).job(key("a-0002"))
    assert (found["state"], found["position"], found["of"], found["nextPick"]) == ("waiting", 3, 3, None)
    assert found["code"] == "BehindOthers"
    assert "needs 8 nvidia.com/gpu; queue a: 3 of 24 nvidia.com/gpu free" in found["numbers"]
    first = reading(store).job(key("a-0000"))
    assert (first["code"], first["position"]) == ("WaitingForQuota", 1)


def test_a_job_that_fits_shows_the_number_of_its_pick() -> None:
    store = opened(spec("a"), spec("b"), waiting=[*entries("a", 2), *entries("b", 2)])
    assert [reading(store).job(key(f"b-000{number}"))["nextPick"] for number in range(2)] == [2, 4]


def test_a_charged_job_is_admitted_and_an_unknown_job_absent() -> None:
    store = opened(spec("a"), held=[reservation("x", "a", attempt=2, cpu=1500)])
    held = reading(store).job(key("x"))
    assert (held["state"], held["attempt"], held["charge"]) == ("admitted", 2, {"cpu": "1500m", "jobs": "1"})
    assert reading(store).job(key("nobody"))["state"] == "absent"


def test_an_unknown_queue_raises_an_error_that_names_it() -> None:
    with pytest.raises(UnknownObject, match="there is no queue nobody"):
        reading(opened(spec("a"))).queue("nobody")


def test_requests_within_a_second_share_a_snapshot() -> None:
    store = opened(spec("a"), waiting=entries("a", 3))
    found = reading(store)
    for _ in range(5):
        found.queues()
        found.job(key("a-0000"))
    assert store.snapshots == 2  # the second snapshot shows more jobs of the queue
    found.next(2)
    assert store.snapshots == 2


def test_a_snapshot_is_renewed_after_the_clock_was_set_back() -> None:
    store = opened(spec("a"))
    now = [NOW]
    found = StoreQueries(store, lambda: VITALS, PickRules(), clock=lambda: now[0])
    found.queues()
    now[0] -= 3600
    found.queues()
    assert store.snapshots == 2


@pytest.mark.parametrize(
    ("values", "part", "expected"),
    [((), 0.5, None), ((7,), 0.95, 7), (range(1, 101), 0.5, 50), (range(1, 101), 0.95, 95), ((3, 1, 2), 0.5, 2)],
)
def test_percentile_returns_the_nearest_rank(values: Any, part: float, expected: float | None) -> None:
    assert figures.percentile(tuple(values), part) == expected


# The sentences about a job.


def manifest(status: dict[str, Any] | None = None, **spec_of_job: Any) -> dict[str, Any]:
    metadata = {"namespace": "team", "name": "train", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": metadata, "spec": {"torchTaskSpecs": {}, **spec_of_job}, "status": status or {}}


ABSENT = {"state": "absent", "job": "team/train", "uid": "u1"}


@pytest.mark.parametrize(
    ("status", "spec_of_job", "code", "words"),
    [
        ({}, {}, "New", "has not put it into its queue yet"),
        ({}, {"schedulingPolicy": {"hold": True}}, "Held", "torchq job resume"),
        ({"queue": {"name": "team", "reason": "Held", "message": "by its owner"}}, {}, "New", "has not put it into"),
        ({"queue": {"parked": True, "reason": "Parked", "message": "5 tries"}}, {}, "Parked", "5 tries"),
        ({"queue": {"reason": "NotAllowed", "message": "queue a is for x"}}, {}, "NotAllowed", "queue a is for x"),
        (
            {"queue": {"reason": "BackingOff", "message": "later", "notBefore": "2026-01-01T01:00:00Z"}},
            {},
            "BackingOff",
            "not before 2026-01-01T01:00:00Z",
        ),
    ],
)
def test_why_explains_a_job_that_is_not_in_the_order_of_its_queue(
    status: dict[str, Any], spec_of_job: dict[str, Any], code: str, words: str
) -> None:
    item = manifest(status, **spec_of_job)
    assert cli_text.is_waiting(item)
    found = cli_text.describe_waiting(item, ABSENT)
    assert found["code"] == code
    assert words in cli_text.format_why(found)
    assert cli_text.format_why(found).startswith("job team/train waits in queue team: ")


@pytest.mark.parametrize(
    ("status", "spec_of_job", "state", "words"),
    [
        ({"phase": "Succeeded"}, {}, "finished", "the job has succeeded"),
        ({"phase": "Suspended"}, {"suspend": True}, "suspended", "torchq job resume"),
        (
            {
                "phase": "Admitted",
                "admission": {"attempt": 2},
                "conditions": [{"type": "Admitted", "message": "finalizers keep them"}],
            },
            {"suspend": True},
            "suspended",
            "the job holds its room until its pods are deleted: finalizers keep them",
        ),
        ({"phase": "Running", "admission": {"attempt": 2, "admittedAt": "then"}}, {}, "admitted", "attempt 2"),
    ],
)
def test_why_explains_a_job_that_does_not_wait(
    status: dict[str, Any], spec_of_job: dict[str, Any], state: str, words: str
) -> None:
    item = manifest(status, **spec_of_job)
    assert not cli_text.is_waiting(item)
    found = cli_text.describe_settled(item)
    assert found["state"] == state
    assert words in cli_text.format_why(found)
    assert "does not wait" in cli_text.format_position(found)


def test_why_prints_reason_numbers_and_position_of_a_waiting_job() -> None:
    store = opened(spec("a", 1, gpu=24), held=[reservation("x", "a", gpu=21)], waiting=entries("a", 3, gpu=8))
    found = cli_text.describe_waiting(
        manifest({"phase": "Queued"}, schedulingPolicy={"queue": "a"}), reading(store).job(key("a-0000"))
    )
    assert cli_text.format_why(found).splitlines() == [
        "job team/train waits in queue a: WaitingForQuota",
        "  queue a has no quota left for the job",
        "  needs 8 nvidia.com/gpu; queue a: 3 of 24 nvidia.com/gpu free; 0 jobs ahead in queue a",
        "  held by job team/x of queue a (nvidia.com/gpu=21)",
        "  number 1 of 3 in queue a, not among the picks that can be forecast",
        "  waiting since 2026-01-01T00:00:00Z",
    ]


def test_why_gives_queue_drained_for_a_drained_job() -> None:
    store = opened(replace(spec("a"), open=False), waiting=entries("a", 1))
    told = {"queue": {"reason": "QueueDrained", "message": "it ran when its queue was drained"}}
    found = cli_text.describe_waiting(manifest(told), reading(store).job(key("a-0000")))
    assert (found["code"], found["message"]) == ("QueueDrained", "it ran when its queue was drained")


def test_rates_compare_two_readings_of_the_same_redis() -> None:
    before = {"at": 10.0, "picks": 100, "reconciles": 50}
    assert system_health.rates(before, {"at": 12.0, "picks": 140, "reconciles": 51}) == {
        "picksPerSecond": 20.0,
        "reconcilesPerSecond": 0.5,
    }
    assert (
        system_health.rates(before, {"at": 12.0, "picks": 3, "reconciles": 51}) == {}
    )  # Redis was emptied between the two readings
    assert system_health.rates(before, before) == {}


@pytest.mark.parametrize(
    ("lease", "numbers", "words"),
    [
        ({"apiServer": "", "leader": "me"}, {"workers": {"w": 8}}, []),
        ({"apiServer": "", "leader": ""}, {"workers": {"w": 8}}, ["no coordinator leads"]),
        ({"apiServer": "", "leader": "me"}, {"workers": {}}, ["no worker is alive"]),
        ({"apiServer": "", "leader": "me"}, {"workers": {"w": 8}, "idleWorkers": ["2 are older"]}, ["2 are older"]),
        ({"apiServer": "away", "leader": ""}, {"redis": "gone"}, ["away", "gone"]),
        ({"apiServer": ""}, {"leader": "me", "failing": "no pods", "workers": {"w": 8}}, ["no pods"]),
    ],
)
def test_status_names_each_problem(lease: dict[str, Any], numbers: dict[str, Any], words: list[str]) -> None:
    found = system_health.summarize(lease, numbers, {})
    assert bool(found["trouble"]) == bool(words)
    assert all(word in status.format_status(found) for word in words)


def test_status_names_the_versions_of_workers_while_they_differ() -> None:
    lease, workers = {"apiServer": "", "leader": "me"}, {"w1": 8, "w2": 8, "w3": 8}
    versions = {"w1": "0.2.0", "w2": "0.1.0", "w3": "0.2.0"}
    mixed = system_health.summarize(lease, {"workers": workers, "workerVersions": versions}, {})
    assert "3 alive, 24 threads (1 of version 0.1.0, 2 of version 0.2.0)" in status.format_status(mixed)
    equal = system_health.summarize(lease, {"workers": workers, "workerVersions": dict.fromkeys(workers, "0.2.0")}, {})
    assert "version" not in status.format_status(equal)


def test_status_prints_the_numbers_of_the_queues() -> None:
    numbers = documents.stats(VITALS) | {"waits": {"admissions": 9, "p50Seconds": 1.0, "p95Seconds": 180.0}}
    lease = {"apiServer": "", "leader": "me", "leaderVersion": "0.2.0"}
    text = status.format_status(system_health.summarize(lease, numbers, {}))
    assert "me (epoch 3, version 0.2.0)" in text
    assert "4 waiting, 5 admitted" in text
    assert "1 ready, 2 delayed, 3 leased" in text
    assert "p50 1s, p95 3m of the last 9 first admissions" in text


def test_a_job_that_waits_for_more_workers_has_its_room_and_the_place_of_its_request() -> None:
    held = replace(reservation("x", "a", cpu=2000), size=2)
    store = opened(spec("a", cpu=2000), held=[held], waiting=[entry("w", "a", START - 5, cpu=1000)])
    store.put([further(entry("x", "a", kind="grow", cpu=1000), 1, cpu=1000)])
    found = reading(store).job(key("x"))
    assert (found["state"], found["workers"]) == ("admitted", 2)
    growth = found["growth"]
    assert (growth["position"], growth["of"], growth["code"]) == (2, 2, "WaitingForQuota")
    roomy = opened(spec("a"), held=[held])
    roomy.put([further(entry("x", "a", kind="grow", cpu=1000), 1, cpu=1000)])
    (pick,) = reading(roomy).next(5)["items"]
    assert (pick["growth"], pick["workers"], pick["demand"]) == (True, 2, {"cpu": "2"})


def test_a_holder_is_named_with_what_it_holds_alone() -> None:
    held = [reservation("runs", gpu=2), reservation("other", cpu=1000)]
    found = documents.holders(ScarceRoom(frozenset(), ("cpu", GPU)), held)
    assert [each["charge"] for each in found["holders"]] == [{"cpu": "1"}, {GPU: "2"}]


def test_a_plan_names_the_rack_that_is_full() -> None:
    plan = Plan(kept=(Kept(key("x"), "NoNodes", "no nodes"), Kept(key("y"), "NoNodes", "no nodes")))
    jobs = [elastic("x"), elastic("y")]
    found = scale_plan.document(plan, jobs, {}, {}, {key("x"): "example.org/rack=r1"}, on=True, leading=True)
    assert [each["message"] for each in found["unchanged"]] == [
        "no nodes; they must be in example.org/rack=r1",
        "no nodes",
    ]
