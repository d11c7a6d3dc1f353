"""Holds of a job: sums over any number of them, and their bound."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from crds import holds
from crds.holds import ClosedHold

START = datetime(2026, 1, 2, tzinfo=UTC)
GPU = "nvidia.com/gpu"
Step = tuple[str, int, dict[str, int]]
"""A queue, for how many seconds, and which room."""


def at(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def closed(steps: list[Step]) -> tuple[ClosedHold, ...]:
    """Return the holds of a job after these steps, one after the other."""
    found: tuple[ClosedHold, ...] = ()
    now = 0
    for number, (queue, seconds, charge) in enumerate(steps, 1):
        named, others = holds.bounded(charge)
        hold = ClosedHold(
            number=holds.next_number(found, number),
            queue=queue,
            attempt=number,
            charge=named,
            unpaid={name: amount // 2 for name, amount in named.items()},
            others=others,
            from_=at(now),
            to=at(now + seconds),
            ended="Suspended",
        )
        now += seconds
        found = holds.add(found, hold)
    return found


steps = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.integers(0, 3_000_000),
        st.dictionaries(st.sampled_from(["cpu", "memory", GPU]), st.integers(0, 10**14)),
    ),
    max_size=30,
)


@given(steps)
def test_merged_holds_keep_their_sums_and_numbers(history: list[Step]) -> None:
    found = closed(history)

    assert len(found) == min(len(history), holds.MOST)
    expected: dict[str, int] = {}
    for _, seconds, charge in history:
        for name, amount in charge.items():
            expected[name] = expected.get(name, 0) + amount * seconds
    assert {name: total for name, total in holds.total_seconds(found).items() if total} == {
        name: total for name, total in expected.items() if total
    }
    unpaid = sum(holds.unpaid_seconds(hold).get(GPU, 0) for hold in found)
    assert unpaid == sum(charge.get(GPU, 0) // 2 * seconds for _, seconds, charge in history)
    assert holds.next_number(found, 0) == len(history) + 1
    assert [ClosedHold.model_validate(hold.manifest()) for hold in found] == list(found), "as the API server keeps it"


def test_the_two_oldest_of_one_queue_become_one_before_a_ninth() -> None:
    found = closed([(queue, 3600, {GPU: 8}) for queue in "abacdefgh"])

    assert [(hold.number, hold.numbers, hold.queue) for hold in found] == [
        (3, "1,3", "a"),
        *(
            (number, "", queue)
            for number, queue in ((2, "b"), (4, "c"), (5, "d"), (6, "e"), (7, "f"), (8, "g"), (9, "h"))
        ),
    ]
    assert found[0].manifest() == {
        "number": 3,
        "numbers": "1,3",
        "queue": "a",
        "attempt": 3,
        "seconds": {GPU: "57600"},
        "unpaidSeconds": {GPU: "28800"},
        "from": "2026-01-02T00:00:00Z",
        "to": "2026-01-02T03:00:00Z",
        "ended": "Suspended",
    }


@pytest.mark.parametrize(("queues", "count"), [("ab", 700), ("abc", 700)])
def test_a_job_that_often_moves_between_queues_claims_each_number_once(queues: str, count: int) -> None:
    found = closed([(queues[number % len(queues)], 60, {GPU: 1}) for number in range(count)])

    ranges = [span for hold in found for span in holds.numbers_of(hold)]
    assert sorted(number for low, high in ranges for number in range(low, high + 1)) == [*range(1, count + 1)]
    assert holds.total_seconds(found) == {GPU: 60 * count}


@pytest.mark.parametrize("step", [8, 16])
def test_all_holds_become_one_if_the_numbers_of_no_two_fit(step: int) -> None:
    full = tuple(
        hold.model_copy(update={"number": step * 49 + at, "numbers": ",".join(str(step * n + at) for n in range(50))})
        for at, hold in enumerate(closed([("a", 60, {GPU: 1})] * holds.MOST), 1)
    )
    found = holds.add(full, full[-1].model_copy(update={"number": 1000, "numbers": ""}))

    assert [hold.numbers for hold in found] == [f"1-{step * 49 + 8}", ""]
    assert holds.total_seconds(found) == {GPU: 9 * 60}


@pytest.mark.parametrize("numbers", ["-", "1-", ",2", "1,,2"])
def test_numbers_that_are_none_are_no_hold(numbers: str) -> None:
    (hold,) = closed([("a", 1, {})])
    with pytest.raises(ValidationError, match="numbers"):
        ClosedHold.model_validate(hold.manifest() | {"numbers": numbers})


def test_a_hold_is_small_whatever_a_job_asks_for() -> None:
    charge = {f"{'x' * 250}.org/{'y' * 60}{number:02}": 2**53 for number in range(64)} | {"cpu": 1000, GPU: 1}
    found = closed([(chr(ord("a") + number % 20), 10**6, charge) for number in range(400)])

    assert list(found[-1].charge)[:2] == ["cpu", GPU]
    assert (len(found[-1].charge), found[-1].others) == (holds.MOST_RESOURCES, 66 - holds.MOST_RESOURCES)
    assert sum(len(hold.model_dump_json(by_alias=True)) for hold in found) < 80_000
    assert [ClosedHold.model_validate(hold.manifest()) for hold in found] == list(found)


def test_what_a_job_holds_now_counts_until_now() -> None:
    admission = {"queue": "a", "attempt": 2, "epoch": 1, "charge": {GPU: 8}, "admittedAt": "2026-01-02T02:00:00Z"}
    kept = [hold.manifest() for hold in closed([("a", 3600, {GPU: 4})])]
    status = {"holds": kept, "admission": admission, "attempt": 2}

    assert holds.total_seconds(holds.read(status, at(3 * 3600))) == {GPU: (4 + 8) * 3600}
    assert holds.total_seconds(holds.read(status | {"completionTime": "2026-01-02T02:30:00Z"}, at(3 * 3600))) == {
        GPU: 4 * 3600
    }, "the end of the job has made its own hold"
    resized = closed([("a", 3600, {GPU: 4}), ("a", 2 * 3600, {GPU: 4})])
    status = {"holds": [hold.manifest() for hold in resized], "admission": admission, "attempt": 2}
    assert holds.read(status, at(4 * 3600))[-1].from_ == at(3 * 3600), "since the last change in this attempt"
