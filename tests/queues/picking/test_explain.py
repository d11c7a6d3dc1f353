"""The reasons why a job waits: every code with its sentence and its numbers."""

from dataclasses import replace
from typing import Any

import pytest

from crds.resources.amounts import Amounts
from queues.picking.explain import Code, explain, suppose
from queues.picking.picker import Picker
from queues.placement.gangs import Gang, Members
from queues.placement.places import Places
from queues.rules import PickRules
from queues.values import Batch, Entry, OvertakenJob, QueuePosition, QueueSpec, Reservation
from tests.doubles.memory_store import MemoryStore
from tests.support.queues.builders import GPU, START, choose, commit, entries, entry, key, opened, reservation, spec
from tests.support.queues.clusters import room_of, shape

RULES = PickRules(longest_patience=0.0)
COHORT = [replace(spec("a", gpu=4), cohort="team"), replace(spec("b", gpu=4), cohort="team")]


def place(store: MemoryStore, name: str) -> QueuePosition:
    position = store.place(key(name))
    assert position is not None
    return position


def test_a_job_waits_behind_a_first_job_that_claims_what_it_needs() -> None:
    waiting = [entry("first", submitted=START - 9, gpu=3), entry("job", gpu=1), entry("other", cpu=1)]
    store = opened([spec("a", gpu=4)], waiting, held=[reservation("runs", gpu=2)])
    store._content.overtaken["a"] = OvertakenJob(key=key("first"), times=0, since=START, claimed=True)
    forecast = Picker(store.snapshot(9), RULES)
    codes = [explain(forecast, place(store, name), START).code for name in ("first", "job", "other")]
    assert codes == ["WaitingForQuota", "BehindOthers", "Next"]


def test_a_payment_for_idle_workers_says_that_it_needs_no_room() -> None:
    payment = replace(entry("job", kind="grow"), unit={GPU: 1}, idle=2)
    store = opened([spec("a", gpu=2)], [payment], held=[replace(reservation("job", gpu=2), size=2, idle=2)])
    explanation = explain(Picker(store.snapshot(9), RULES), place(store, "job"), START)
    assert explanation.code == "Next"
    assert explanation.numbers.startswith("needs no room: its queue pays for 2 workers that run already; 0 jobs ahead")


def test_no_holder_of_room_is_named_for_a_job_that_no_nodes_could_ever_hold() -> None:
    room = room_of([{GPU: 4, "pods": 9}] * 2)
    gang = Gang((Members(shape(**{GPU: 8}), 1),))
    store = opened([spec("a")], [entry("job", gpu=8)], {GPU: 8}, held=[reservation("runs", gpu=8)])
    picker = Picker(store.snapshot(9), RULES, places=Places(room, room.copy(), lambda *_: gang))
    explanation = explain(picker, place(store, "job"), START)
    assert (explanation.code, explanation.room) == ("WaitingForNodes", None), "no end of a job would help"


@pytest.mark.parametrize(
    ("code", "queues", "job", "held", "pool"),
    [
        ("Next", [spec("a")], entry("job", gpu=1), [], None),
        ("New", [spec("b")], entry("job", gpu=1), [], None),
        ("QueueHeld", [replace(spec("a"), open=False)], entry("job", gpu=1), [], None),
        ("ExceedsQuota", [spec("a", gpu=2)], entry("job", gpu=3), [], None),
        ("ExceedsQuota", [replace(spec("a", gpu=2), open=False)], entry("job", gpu=3), [], None),
        ("QueueHeld", [replace(spec("a", gpu=4), open=False)], entry("job", gpu=3), [], {GPU: 2}),
        ("ExceedsQuota", [spec("a")], entry("job", gpu=3), [], {GPU: 2}),
        ("ExceedsQuota", COHORT, entry("job", gpu=9), [], None),
        ("BehindOthers", [spec("a")], entry("job", submitted=START + 99, gpu=1), [], None),
        ("WaitingForQuota", [spec("a", gpu=4)], entry("job", gpu=3), [reservation("runs", gpu=2)], None),
        ("WaitingForCohort", COHORT, entry("job", gpu=3), [reservation("runs", "b", gpu=6)], None),
        ("WaitingForPool", [spec("a")], entry("job", gpu=3), [reservation("runs", gpu=2)], {GPU: 4}),
    ],
)
def test_each_obstacle_has_its_code_and_a_sentence_without_numbers(
    code: Code, queues: list[QueueSpec], job: Entry, held: list[Reservation], pool: Amounts | None
) -> None:
    others = [entry("first", submitted=START - 1, gpu=1)] if code == "BehindOthers" else []
    store = opened(queues, [job, *others], pool, held)
    explanation = explain(Picker(store.snapshot(9), RULES), place(store, "job"), START)
    assert explanation.code == code
    assert not any(letter.isdigit() for letter in explanation.sentence)


def test_the_numbers_name_demand_free_room_and_rank() -> None:
    waiting = [*entries("a", 2, gpu=8), entry("job", submitted=START + 9, gpu=8, cpu=1500)]
    store = opened([spec("a", gpu=24, jobs=9)], waiting, {GPU: 64}, held=[reservation("runs", gpu=21)])
    explanation = explain(Picker(store.snapshot(9), RULES), place(store, "job"), START)
    assert explanation.code == "WaitingForQuota"
    assert explanation.numbers == (
        "needs 1500m cpu, 8 nvidia.com/gpu; queue a: 8 of 9 jobs, 3 of 24 nvidia.com/gpu free; "
        "the pool: 43 of 64 nvidia.com/gpu free; 2 jobs ahead in queue a"
    )


@pytest.mark.parametrize(
    ("record", "passed"),
    [
        ({"times": 1}, "passed by 1 job"),
        ({"times": 3, "late": True}, "passed by 3 jobs; no job of its queue that takes its room passes it any more"),
        (
            {"times": 2, "kept": {GPU: 3}, "kept_since": 1764511320.5},
            "passed by 2 jobs; room is kept for it since 2025-11-30T14:02:00Z: no other job takes it any more, and its "
            "queue pays for the time",
        ),
        ({"times": 0, "vain": 1}, "room was kept for it in vain: it is again at the next turn of queue a"),
    ],
)
def test_the_numbers_say_how_many_jobs_have_passed_and_whether_more_may(record: dict[str, Any], passed: str) -> None:
    store = opened([spec("a", gpu=4)], [entry("job", gpu=3), entry("other", submitted=START + 9, gpu=1)],
                   held=[reservation("runs", gpu=2)])  # fmt: skip
    store._content.overtaken["a"] = OvertakenJob(key=key("job"), since=START, **record)
    picker = Picker(store.snapshot(9), RULES)
    assert f"; {passed}; 0 jobs ahead" in explain(picker, place(store, "job"), START).numbers
    assert "passed" not in explain(picker, place(store, "other"), START).numbers


@pytest.mark.parametrize(
    ("record", "passed"),
    [
        ({"times": 1}, "others have passed it for 9 s"),
        (
            {"times": 1, "late": True, "collected_until": START + 40},
            "others have passed it for 9 s; no job of its queue that takes its room passes it any more; "
            "cohort team lends nothing of what it asks for to others, for 31 s more",
        ),
        (
            {"times": 0, "uncollected": 2},
            "room was collected for its queue 2 times in vain: the pause before the next time doubles",
        ),
    ],
)
def test_the_numbers_say_what_is_collected_for_a_job_that_has_to_borrow(record: dict[str, Any], passed: str) -> None:
    store = opened(COHORT, [entry("job", gpu=6)], held=[reservation("runs", "b", gpu=5)])
    store._content.overtaken["a"] = OvertakenJob(key=key("job"), since=START, **record)
    picker = Picker(store.snapshot(9), RULES)
    assert f"; {passed}; 0 jobs ahead" in explain(picker, place(store, "job"), START + 9).numbers


def test_a_job_that_wants_to_borrow_is_told_that_its_cohort_collects_for_another_queue() -> None:
    store = opened(COHORT, [entry("large", gpu=6), entry("job", "b", gpu=1)], held=[reservation("runs", "b", gpu=5)])
    store._content.overtaken["a"] = OvertakenJob(
        key=key("large"), times=1, since=START, late=True, collected_until=START + 40
    )
    explanation = explain(Picker(store.snapshot(9), RULES), place(store, "job"), START)
    assert explanation.code == "WaitingForCohort"
    assert "; what is free is collected for the first job of another queue, which waits longer to borrow" in (
        explanation.numbers
    )


@pytest.mark.parametrize(
    ("held", "shares"),
    [
        (
            [reservation("mine", "a", gpu=4), reservation("theirs", "b", gpu=1)],
            "own jobs use 4 of 4 nvidia.com/gpu; no other member is beyond its quota; "
            "what is free is kept for members that lend it",
        ),
        (
            [reservation("mine", "a", gpu=3), reservation("theirs", "b", gpu=5)],
            "own jobs use 3 of 4 nvidia.com/gpu; beyond their quotas: another queue 5 of 4 nvidia.com/gpu",
        ),
        (
            [reservation("mine", "a", gpu=4), reservation("theirs", "b", gpu=4)],
            "own jobs use 4 of 4 nvidia.com/gpu; no other member is beyond its quota",
        ),
    ],
)
def test_a_wait_for_a_cohort_tells_own_jobs_from_members_beyond_their_quota(
    held: list[Reservation], shares: str
) -> None:
    store = opened(COHORT, [entry("job", gpu=1), entry("lender", "b", gpu=3)], held=held)
    explanation = explain(Picker(store.snapshot(9), RULES), place(store, "job"), START)
    assert explanation.code == "WaitingForCohort"
    assert f"; {shares}; 0 jobs ahead" in explanation.numbers


@pytest.mark.parametrize(
    ("queues", "pool", "job", "sizes"),
    [
        ([spec("a", gpu=4)], None, entry("job", gpu=3, cpu=1), {"a": (2,), "b": ()}),
        (COHORT, None, entry("job", gpu=6), {"a": (2,), "b": (2,), "c": ()}),
        ([spec("a"), spec("b")], {GPU: 4}, entry("job", gpu=3), {"a": (2,), "b": (2,)}),
        ([spec("a", jobs=1)], None, entry("job", gpu=1), {"a": (1,), "b": ()}),
    ],
)
def test_the_room_that_a_job_waits_for_is_that_of_its_queue_its_cohort_or_the_pool(
    queues: list[QueueSpec], pool: Amounts | None, job: Entry, sizes: dict[str, tuple[int, ...]]
) -> None:
    store = opened(queues, [job], pool, [reservation("runs", gpu=2), reservation("too", "b", gpu=2)])
    room = explain(Picker(store.snapshot(9), RULES), place(store, "job"), START).room
    assert room is not None
    assert {name: room.sizes(name, reservation("runs", name, gpu=2).charge) for name in sizes} == sizes
    assert room.sizes("a", {"cpu": 1000}) == ()


def test_a_job_waits_for_the_pool_while_room_is_reserved_for_another() -> None:
    waiting = [entry("large", "a", gpu=8), *entries("b", 9, gpu=1)]
    store = opened([spec("a"), spec("b")], waiting, {GPU: 8}, held=[reservation("runs", "b", gpu=4)])
    assert explain(Picker(store.snapshot(9), RULES), place(store, "b-0000"), START).code == "Next"
    while commit(store, batch := _one(store)).reservations:
        assert batch.picks[0].waiting.entry.queue == "b"
    explanation = explain(Picker(store.snapshot(9), RULES), place(store, "b-0001"), START)
    assert (explanation.code, explanation.sentence) == (
        "WaitingForPool",
        "the pool's room is reserved for a job that was overtaken before",
    )


def _one(store: MemoryStore) -> Batch:
    return choose(store.snapshot(9), START, 1, RULES)


def test_explain_reports_the_second_job_of_a_strict_queue_behind_others() -> None:
    waiting = [entry("large", gpu=8), entry("small", submitted=START + 1, gpu=1)]
    for strict, code in ((True, "BehindOthers"), (False, "Next")):
        store = opened([replace(spec("a", gpu=8), strict=strict)], waiting, held=[reservation("runs", gpu=2)])
        assert explain(Picker(store.snapshot(9), RULES), place(store, "small"), START).code == code


@pytest.mark.parametrize(
    ("code", "rank", "queues", "waiting", "held"),
    [
        ("Next", 0, [spec("a", gpu=4)], [], []),
        ("Next", 0, [spec("b")], [], []),
        ("WaitingForQuota", 0, [spec("a", gpu=4)], [], [reservation("runs", gpu=2)]),
        ("BehindOthers", 1, [spec("a", gpu=4)], [entry("older", submitted=START - 1, gpu=3)], []),
        ("Next", 0, [spec("a", gpu=4)], [entry("younger", submitted=START + 1, gpu=3)], []),
        ("QueueHeld", 0, [replace(spec("a", gpu=4), open=False)], [], []),
        ("ExceedsQuota", 0, [spec("a", gpu=2)], [], []),
    ],
)
def test_suppose_explains_a_job_that_is_in_no_queue(
    code: Code, rank: int, queues: list[QueueSpec], waiting: list[Entry], held: list[Reservation]
) -> None:
    store = opened(queues, waiting, {GPU: 8}, held)
    before, job = store.snapshot(9), entry("job", submitted=START, gpu=3)
    explanation = suppose(before, job, RULES, START)
    assert explanation.code == code
    assert f"{rank} job" in explanation.numbers
    assert store.snapshot(9) == before
    if any(each.name == "a" for each in queues):  # the answer is the same once the job is queued
        store.put([job])
        assert explain(Picker(store.snapshot(9), RULES), place(store, "job"), START) == explanation
