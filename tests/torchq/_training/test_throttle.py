"""Which reports are printed, and that none of its kind is lost."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from torchq._training.throttle import MOST_WAITING, Throttle


def test_one_report_a_second_is_printed_and_the_newest_one_follows() -> None:
    throttle = Throttle(1.0)
    printed = [throttle.add({"step": step}, step / 10) for step in range(25)]
    assert [(place, report) for place, report in enumerate(printed) if report] == [
        (0, {"step": 0}),
        (10, {"step": 10}),
        (20, {"step": 20}),
    ]
    assert throttle.take_all() == [{"step": 24}]
    assert throttle.take_all() == []


def test_an_accuracy_given_once_is_printed_among_many_losses() -> None:
    throttle = Throttle(1.0)
    reports = [throttle.add({"step": step, "loss": 0.5}, step / 1000) for step in range(500)]
    reports.append(throttle.add({"step": 500, "accuracy": 0.9}, 0.5))
    reports += [throttle.add({"step": step, "loss": 0.5}, step / 1000) for step in range(501, 2002)]
    assert [report for report in reports if report] == [
        {"step": 0, "loss": 0.5},
        {"step": 1000, "loss": 0.5},
        {"step": 500, "accuracy": 0.9},
    ]


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.floats(0, 0.7)), max_size=60))
def test_the_newest_report_of_each_kind_is_printed_last_and_never_two_within_a_second(
    calls: list[tuple[str, float]],
) -> None:
    throttle, now, printed = Throttle(1.0), 0.0, []
    for number, (name, pause) in enumerate(calls):
        now += pause
        if (report := throttle.add({name: number}, now)) is not None:
            printed.append((now, report))
    times = [time for time, _ in printed]
    assert all(later >= earlier + 1.0 for earlier, later in itertools.pairwise(times))
    last = {name: number for number, (name, _) in enumerate(calls)}
    seen: dict[str, float] = {}
    for report in [*(report for _, report in printed), *throttle.take_all()]:
        seen.update(report)
    assert seen == last


def test_a_program_that_makes_up_names_does_not_fill_the_memory() -> None:
    throttle = Throttle(1.0)
    for number in range(1000):
        throttle.add({f"name{number}": number}, 0.0)
    assert len(throttle.take_all()) == MOST_WAITING
