"""The findings of the doctor. Each case is a state in which one thing is wrong."""

from dataclasses import replace
from typing import Any

import pytest

from coordinator.cache.views import JobView
from coordinator.cache.worker_counts import WantedGrowth, WorkerCounts
from coordinator.doctor import findings, state_checks, work_checks
from coordinator.doctor.inspection import ClusterInspection, Inspection, LeaseView
from crds.keys import JobKey
from queues import limits, order
from queues.inspection.rq_record import FUNCTION
from queues.inspection_values import Fault, RqJob, StoreInspection, WorkInspection, WorkRecord
from queues.installation import Installation
from queues.registrations import Member, Registration
from queues.values import Entry, QueueSpec, Reservation
from tests.support.coordinator.builders import KEY, admission, job, pod

NOW = 1_800_000_000.0
WAITS = JobKey("team", "waits", "u2")
GONE = JobKey("team", "gone", "u9")
CHARGE = {"cpu": 2000, "jobs": 1}
SPEC = QueueSpec(name="a")
ENTRY = Entry(key=WAITS, queue="a", submitted=100.0, attempt=1, demand=CHARGE)
HELD = Reservation(key=KEY, queue="a", attempt=1, epoch=3, charge=CHARGE, port=20_001)
BATCH = RqJob(id="b1", where="queue", function=FUNCTION)
LEASED = WorkRecord(state="leased", tenant="a", token="t1", lease_ends=NOW + 9)


def worker(until: float = NOW + 10, **fields: Any) -> Member:
    return Member(registration=Registration(worker="w", threads=4, **fields), until=until)


def look(**changes: Any) -> Inspection:
    """Return a cluster, a store and a work queue that agree: one job is admitted and runs, one job waits. Each of
    `changes` replaces a field of the same name, in the one of the three that has this field.
    """
    cluster = ClusterInspection(
        jobs={KEY: job(admission=admission(), attempt=1, phase="Running"), WAITS: job(key=WAITS)},
        pods=(pod(),),
        specs={"a": SPEC},
        lease=LeaseView(holder="me", epoch=3, renewed="2027-01-15T07:59:59.000000Z", seconds=8.0),
        now=NOW,
    )
    store = StoreInspection(
        epoch=3,
        specs={"a": SPEC},
        entries={WAITS: ENTRY},
        places={"a": {WAITS: order.score(ENTRY, 600.0)}},
        reservations={KEY: HELD},
        usage={"a": CHARGE},
        pool_usage=CHARGE,
        ports={20_001: KEY},
    )
    work = WorkInspection(now=NOW, members=(worker(),), rq=(BATCH,))
    parts = [
        replace(part, **{name: value for name, value in changes.items() if hasattr(part, name)})
        for part in (cluster, store, work)
    ]
    return Inspection(*parts)


def codes(**changes: Any) -> list[tuple[str, str]]:
    return [(each.code, each.subject) for each in state_checks.compare(look(**changes))]


def test_a_consistent_system_has_no_findings() -> None:
    assert codes() == []


def test_a_store_of_another_installation_is_compared_with_nothing() -> None:
    ours, theirs = Installation("ours", "kube-system"), Installation("theirs", "kube-system").encode().encode()
    assert codes(installation=ours, owner=ours.encode().encode()) == []
    assert codes(installation=ours, owner=theirs, usage={}, reservations={}) == [("foreign-store", "Redis")]


def test_a_redis_that_is_not_fit_is_compared_with_nothing() -> None:
    assert codes(unfit="Redis is full", entries={}, usage={}, reservations={}) == [("unfit-redis", "Redis")]


WORKS = {KEY: LEASED}
"""A worker has leased the job, so its pods are about to change."""


@pytest.mark.parametrize(
    ("changes", "code", "subject"),
    [
        ({"lease": None}, "no-lease", "Lease"),
        ({"lease": LeaseView(holder="", epoch=3, renewed="", seconds=8.0)}, "no-leader", "Lease"),
        (
            {"lease": LeaseView(holder="me", epoch=3, renewed="2027-01-15T07:59:51Z", seconds=8.0)},
            "lease-silent",
            "Lease",
        ),
        ({"lease": LeaseView(holder="me", epoch=3, renewed="never", seconds=8.0)}, "lease-silent", "Lease"),
        ({"members": ()}, "no-workers", "workers"),
        ({"members": (worker(until=NOW - 1),)}, "no-workers", "workers"),
        ({"members": (worker(), worker(layout=9))}, "idle-workers", "workers"),
        ({"members": (worker(), worker(clock="the clock is wrong"))}, "wrong-clock", "workers"),
        ({"skipped": {"coordinator": "TorchJob a/b (ValueError: no)"}}, "skipped-object", "coordinator"),
        ({"unreadable": {"TenantQueue b": "admits nothing"}}, "unreadable-object", "TenantQueue b"),
        ({"ineffective": {"b": "spec.quota: gpu is not a resource"}}, "ineffective-limit", "queue b"),
        ({"unfit": "Redis at redis://redis:6379/0 is a replica"}, "unfit-redis", "Redis"),
        ({"epoch": 0}, "store-lost", "queues"),
        ({"epoch": 0, "rebuilding": 4}, "rebuild-unfinished", "queues"),
        (
            {"lease": LeaseView(holder="me", epoch=4, renewed="2027-01-15T08:00:00Z", seconds=8.0)},
            "epoch-differs",
            "queues",
        ),
        # objects
        (
            {
                "jobs": {
                    KEY: job(admission=admission(), attempt=1, phase="Running"),
                    WAITS: job(key=WAITS, invalid=True),
                },
                "entries": {},
                "places": {},
            },
            "invalid-job",
            str(WAITS),
        ),
        # charges
        (
            {"reservations": {KEY: replace(HELD, attempt=2)}},
            "wrong-reservation",
            str(KEY),
        ),
        (
            {
                "reservations": {KEY: replace(HELD, charge={"cpu": 1000, "jobs": 1})},
                "usage": {"a": {"cpu": 1000, "jobs": 1}},
                "pool_usage": {"cpu": 1000, "jobs": 1},
            },
            "wrong-reservation",
            str(KEY),
        ),
        ({"pool_usage": {"cpu": 2001, "jobs": 1}}, "leaked-charge", "pool"),
        ({"counted": limits.STANDARD_RESOURCES, "pool_usage": {**CHARGE, "gpu": 1}}, "leaked-charge", "pool"),
        (
            {"counted": limits.STANDARD_RESOURCES - {"cpu"}, "usage": {"a": {"jobs": 1}}, "pool_usage": {"jobs": 1}},
            "wrong-settings",
            "usage",
        ),
        ({"counted": limits.STANDARD_RESOURCES, "pool": {"gpu": 1}}, "wrong-settings", "usage"),
        ({"usage": {"a": CHARGE, "b": {"cpu": 1}}}, "leaked-charge", "queue b"),
        ({"usage": {"a": {"cpu": 2000}}}, "leaked-charge", "queue a"),
        ({"ports": {}}, "wrong-port", str(KEY)),
        ({"ports": {20_001: GONE}}, "wrong-port", str(KEY)),
        ({"ports": {20_001: KEY, 20_002: GONE}}, "wrong-port", str(GONE)),
        # waiting
        ({"entries": {}, "places": {}}, "missing-entry", str(WAITS)),
        ({"entries": {WAITS: replace(ENTRY, demand={"jobs": 1})}}, "wrong-entry", str(WAITS)),
        (
            {"entries": {WAITS: replace(ENTRY, priority=1)}, "places": {"a": {WAITS: -500.0}}},
            "wrong-entry",
            str(WAITS),
        ),
        ({"places": {"a": {WAITS: 101.0}}}, "misplaced-entry", str(WAITS)),
        ({"places": {}}, "misplaced-entry", str(WAITS)),
        ({"places": {"a": {WAITS: 100.0, GONE: 1.0}}}, "misplaced-entry", str(GONE)),
        ({"places": {"a": {WAITS: 100.0}, "b": {WAITS: 100.0}}}, "misplaced-entry", str(WAITS)),
        # nodes
        ({"slow_nodes": frozenset({"n1"})}, "slow-restarts", "node n1"),
        ({"split_gangs": {KEY: "2 of 3"}}, "split-gang", str(KEY)),
        # pods
        ({"pods": (pod(attempt=2),)}, "foreign-attempt-pod", "team/train-master-0"),
        # work
        ({"ready_count": 1}, "wrong-ready-count", "work"),
        (
            {"ready": {"a": frozenset((KEY,))}, "ready_count": 1, "ready_length": 1},
            "stuck-tenant",
            "a",
        ),
        ({"leases": {KEY: NOW + 5}}, "stray-lease", str(KEY)),
        ({"leases": {KEY: NOW - 5}, "records": {KEY: replace(LEASED, lease_ends=NOW - 5)}}, "stuck-lease", str(KEY)),
        ({"records": {KEY: replace(LEASED, lease_ends=None)}}, "lost-lease", str(KEY)),
        ({"records": {KEY: WorkRecord(state="ready", tenant="a", since="1")}}, "stuck-key", str(KEY)),
        (
            {
                "records": {KEY: WorkRecord(state="ready", tenant="a", kind="ends", since="1")},
                "ready": {"a": frozenset((KEY,))},
                "turns": frozenset("a"),
                "ready_count": 1,
                "ready_length": 1,
            },
            "stuck-key",
            str(KEY),
        ),
        ({"records": {KEY: WorkRecord(state="delayed", tenant="a")}}, "stuck-key", str(KEY)),
        ({"records": {KEY: WorkRecord(state="")}}, "stuck-key", str(KEY)),
        # RQ and Redis
        ({"rq": (BATCH, RqJob(id="x", where="queue", function="os.system"))}, "foreign-rq-job", "x"),
        ({"rq": (RqJob(id="x", where="failed", function=""),)}, "foreign-rq-job", "x"),
        ({"rq": (RqJob(id="x", where="failed", function=FUNCTION),)}, "failed-batch", "x"),
        ({"rq": (RqJob(id="x", where="none", function=FUNCTION),)}, "orphan-batch", "x"),
        ({"faults": (Fault("torchq:clock", "cannot be read"),)}, "broken-key", "torchq:clock"),
        ({"unknown": ("torchq:junk",)}, "unknown-key", "torchq:junk"),
        ({"foreign": ("somebody",)}, "foreign-keys", "somebody"),
    ],
)
def test_each_disagreement_is_the_only_finding(changes: dict[str, Any], code: str, subject: str) -> None:
    assert codes(**changes) == [(code, subject)]


def test_resources_without_a_limit_are_left_out_of_the_sums() -> None:
    held = {KEY: replace(HELD, charge={**CHARGE, "example.org/made-up": 1})}
    assert codes(reservations=held, counted=limits.STANDARD_RESOURCES) == [("wrong-reservation", str(KEY))]


def test_a_reservation_of_a_deleted_job_is_an_orphan() -> None:
    held = {KEY: HELD, GONE: replace(HELD, key=GONE, port=0)}
    twice = {"cpu": 4000, "jobs": 2}
    assert codes(reservations=held, usage={"a": twice}, pool_usage=twice) == [("orphan-reservation", str(GONE))]


@pytest.mark.parametrize("state", [{"phase": "Succeeded", "finished": True}, {"deleting": True}, {"invalid": True}])
def test_a_reservation_of_an_ended_job_is_an_orphan_unless_a_pod_occupies(state: dict[str, Any]) -> None:
    ended = job(admission=None if "invalid" in state else admission(), attempt=1, **state)
    told = [("invalid-job", str(KEY))] if ended.invalid else []
    assert codes(jobs={KEY: ended, WAITS: job(key=WAITS)}, pods=()) == [*told, ("orphan-reservation", str(KEY))]
    assert codes(jobs={KEY: ended, WAITS: job(key=WAITS)}, pods=(pod(),), records=WORKS, leases={KEY: NOW + 9}) == []


def test_an_admission_without_a_charge_is_a_missing_reservation() -> None:
    assert codes(reservations={}, usage={}, pool_usage={}, ports={}) == [("missing-reservation", str(KEY))]


def test_a_pod_of_a_waiting_job_is_foreign_and_lacks_a_reservation() -> None:
    jobs = {KEY: job(admission=admission(), attempt=1, phase="Running"), WAITS: job(key=WAITS, attempt=1)}
    assert codes(jobs=jobs, pods=(pod(), pod(job=WAITS, name="waits-master-0"))) == [
        ("foreign-attempt-pod", "team/waits-master-0"),
        ("missing-reservation", str(WAITS)),
        ("stray-entry", str(WAITS)),
    ]


def test_a_pod_of_a_deleted_job_is_an_orphan_and_lacks_a_reservation() -> None:
    found = codes(pods=(pod(), pod(job=GONE, name="gone-master-0")))
    assert found == [("missing-reservation", str(GONE)), ("orphan-pod", "team/gone-master-0")]


@pytest.mark.parametrize("going", [{"deleting": True}, {"occupies": False}])
def test_a_pod_that_is_ending_is_no_foreign_attempt_pod(going: dict[str, Any]) -> None:
    assert "foreign-attempt-pod" not in dict(codes(pods=(pod(), pod(attempt=7, name="old", **going))))


def test_a_leased_job_has_no_findings_unless_its_runs_fail() -> None:
    strange = (pod(attempt=7),)
    assert codes(pods=strange, records=WORKS, leases={KEY: NOW + 9}) == []
    failing = WorkRecord(state="delayed", tenant="a", failures=work_checks.FAILURES, due=NOW + 60)
    assert codes(pods=strange, records={KEY: failing}) == [("foreign-attempt-pod", "team/train-master-0")]


def test_a_pick_that_is_not_offered_as_work_is_an_unseen_pick() -> None:
    picked = {KEY: HELD, WAITS: replace(HELD, key=WAITS, port=0)}
    twice = {"cpu": 4000, "jobs": 2}
    store = {"reservations": picked, "usage": {"a": twice}, "pool_usage": twice}
    waits = {"entries": {}, "places": {}}
    assert codes(**store, **waits) == [("unseen-pick", str(WAITS))]
    assert codes(**store, **waits, records={WAITS: LEASED}, leases={WAITS: NOW + 9}) == []
    assert codes(**store) == [("stray-entry", str(WAITS)), ("unseen-pick", str(WAITS))]


@pytest.mark.parametrize(
    "state",
    [
        {"suspended": True},
        {"cancelled": True},
        {"held": True},
        {"deleting": True},
        {"phase": "Failed", "finished": True},
    ],
)
def test_an_entry_of_a_job_that_may_not_wait_is_a_stray_entry(state: dict[str, Any]) -> None:
    admitted = {KEY: job(admission=admission(), attempt=1)}
    assert codes(jobs={**admitted, WAITS: job(key=WAITS, **state)}) == [("stray-entry", str(WAITS))]


def test_queue_settings_that_differ_in_the_store_are_found() -> None:
    wanted = QueueSpec(name="a", weight=5)
    assert codes(specs={"a": wanted}) == []  # both the cluster and the store have the changed spec
    here = replace(look().cluster, specs={"a": wanted})
    found = state_checks.compare(Inspection(here, look().store, look().work))
    assert [(each.code, each.subject) for each in found] == [("wrong-settings", "queue a")]
    assert codes(specs={"a": SPEC, "implicit": QueueSpec(name="implicit")}) == []


def test_an_admission_of_a_later_epoch_than_the_store_is_found() -> None:
    later = job(admission=admission(epoch=9), attempt=1)
    assert ("epoch-differs", str(KEY)) in codes(jobs={KEY: later, WAITS: job(key=WAITS)})


def test_a_lost_store_is_the_only_finding() -> None:
    empty = {"entries": {}, "places": {}, "reservations": {}, "usage": {}, "pool_usage": {}, "ports": {}}
    assert codes(epoch=0, **empty) == [("store-lost", "queues")]


def test_a_finding_is_confirmed_only_if_two_looks_agree() -> None:
    first = state_checks.compare(look(pool_usage={"cpu": 2001, "jobs": 1}, unknown=("torchq:junk",)))
    moved = state_checks.compare(look(pool_usage={"cpu": 2002, "jobs": 1}, unknown=("torchq:junk",)))
    assert [each.code for each in state_checks.confirm(first, moved)] == ["unknown-key"]
    renewed = replace(LEASED, lease_ends=NOW - 3)
    expired = [
        state_checks.compare(look(records={KEY: each}, leases={KEY: NOW - 5}))
        for each in (replace(LEASED, lease_ends=NOW - 5), renewed, replace(LEASED, token="t2", lease_ends=NOW - 5))
    ]
    assert state_checks.confirm(expired[0], expired[0])
    assert state_checks.confirm(expired[0], expired[1]) == state_checks.confirm(expired[0], expired[2]) == ()


def test_every_code_names_its_repair() -> None:
    assert findings.REMEDIES.keys() >= findings.HARMLESS | findings.NOT_REPAIRABLE
    for code in findings.REMEDIES:
        assert findings.Finding(code, "x", "y").remedy


GROWING = job(
    admission=admission(workers=2, grown=1, charge={"cpu": 2000, "jobs": 1}),
    attempt=1,
    phase="Running",
    workers=WorkerCounts(1, 4, 1, {"cpu": 1000, "jobs": 1}, {"cpu": 1000}, WantedGrowth(4, 100.0)),
)
GROWTH = Entry(
    key=KEY, queue="a", kind="grow", submitted=100.0, attempt=1, demand={"cpu": 1000}, size=1, most=1, grown=1
)


def of_growth(entry: Entry | None = GROWTH, wanted: JobView = GROWING, **changes: Any) -> list[tuple[str, str]]:
    """Return the findings about a job of 2 workers that wants 4."""
    entries = {WAITS: ENTRY} | ({KEY: entry} if entry else {})
    places = {"a": {key: order.score(each, 600.0) for key, each in entries.items()}}
    held = replace(HELD, size=2, grown=1)
    fields = {"jobs": {KEY: wanted, WAITS: job(key=WAITS)}, "reservations": {KEY: held}}
    return codes(**{**fields, "entries": entries, "places": places, **changes})


def test_every_job_that_waits_for_more_workers_has_an_entry_and_no_other_admitted_job_has_one() -> None:
    assert of_growth() == []
    assert of_growth(None) == [("missing-entry", str(KEY))]
    assert of_growth(None, specs={"a": replace(SPEC, quota={"cpu": 2999})}) == [], (
        "the queue can never give the job more"
    )
    assert GROWING.workers is not None
    assert of_growth(wanted=replace(GROWING, workers=replace(GROWING.workers, growth=None))) == [
        ("stray-entry", str(KEY))
    ]
    assert of_growth(replace(GROWTH, grown=0)) == [("wrong-entry", str(KEY))]
    assert of_growth(replace(GROWTH, idle=1)) == [("wrong-entry", str(KEY))]


def test_a_charge_is_compared_with_the_grant_unless_a_worker_has_yet_to_write_it() -> None:
    more = {"cpu": 3000, "jobs": 1}
    sums = {"usage": {"a": more}, "pool_usage": more}
    assert of_growth(reservations={KEY: replace(HELD, size=2, grown=1, idle=1)}) == [("wrong-reservation", str(KEY))]
    larger = replace(HELD, size=2, grown=1, charge=more)
    assert of_growth(reservations={KEY: larger}, **sums) == [("wrong-reservation", str(KEY))]
    grown = {"reservations": {KEY: replace(larger, size=3, grown=2)}, **sums}
    assert of_growth(None, **grown, records=WORKS, leases={KEY: NOW + 9}) == []
    assert of_growth(None, **grown) == [("unseen-pick", str(KEY))]
