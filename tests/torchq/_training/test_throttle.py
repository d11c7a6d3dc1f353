"""The reports that are printed, and that no report is left out without a note."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from torchq._training.throttle import FLOOD_SECONDS, LEFT_OUT, MOST_WAITING, RATE, Throttle

MOST = int(RATE * FLOOD_SECONDS)


def test_a_thousand_reports_at_once_are_printed_in_order() -> None:
    throttle = Throttle()
    assert [throttle.add({"step": step}, 0.0) for step in range(MOST)] == [[{"step": step}] for step in range(MOST)]


def test_a_hundred_reports_in_a_second_are_printed_for_ever() -> None:
    throttle = Throttle()
    assert all(throttle.add({"step": step}, step / RATE) == [{"step": step}] for step in range(5 * MOST))


def test_a_flood_is_thinned_evenly_and_its_lines_say_how_many_were_left_out() -> None:
    throttle = Throttle()
    printed = [line for step in range(10_000) for line in throttle.add({"step": step}, step / 500)]
    thinned = [line for line in printed if LEFT_OUT in line]
    gaps = {int(later["step"] - earlier["step"]) for earlier, later in itertools.pairwise(thinned)}
    assert gaps <= {4, 5, 6}
    assert all(line[LEFT_OUT] in (3, 4, 5) for line in thinned[1:])
    assert sum(LEFT_OUT not in line for line in printed) == printed.index(thinned[0]), (
        "thinning begins once and then goes on"
    )


def test_a_program_that_reports_slowly_again_is_printed_whole_again() -> None:
    throttle = Throttle()
    for step in range(2 * MOST):
        throttle.add({"step": step}, 0.0)
    assert throttle.add({"step": -1}, 60.0) == [{"step": -1, LEFT_OUT: MOST}]
    assert throttle.add({"step": -2}, 60.0) == [{"step": -2}]


def test_an_accuracy_given_once_is_printed_in_order_in_a_flood_of_losses() -> None:
    throttle = Throttle()
    steps = [{"step": step, "loss": 0.5} for step in range(3 * MOST)]
    steps[2 * MOST + 7] = {"step": 2 * MOST + 7, "accuracy": 0.9}
    printed = [line for number, report in enumerate(steps) for line in throttle.add(report, number / 10_000)]
    assert [line["step"] for line in printed if "accuracy" in line] == [2 * MOST + 7]
    assert [line["step"] for line in printed] == sorted(line["step"] for line in printed)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.floats(0, 0.7)), max_size=60))
def test_the_newest_report_of_each_kind_comes_last_and_all_are_printed_or_counted(
    calls: list[tuple[str, float]],
) -> None:
    throttle, now, printed = Throttle(rate=2.0, seconds=4.0), 0.0, []
    for number, (name, pause) in enumerate(calls):
        now += pause
        printed += throttle.add({name: number}, now)
    assert len(printed) <= 2.0 * (now + 4.0) + 4, "a line may also have values of other names"
    printed += throttle.take_all()
    seen = [{name: number for name, number in line.items() if name != LEFT_OUT} for line in printed]
    numbers = [number for line in seen for number in line.values()]
    assert numbers == sorted(numbers)
    assert len(numbers) + sum(line.get(LEFT_OUT, 0) for line in printed) == len(calls)
    last = {name: number for number, (name, _) in enumerate(calls)}
    assert {name: number for line in seen for name, number in line.items()} == last
    assert throttle.take_all() == []


def test_a_program_that_makes_up_names_does_not_fill_the_memory() -> None:
    throttle = Throttle()
    for number in range(2 * MOST):
        throttle.add({f"name{number}": number}, 0.0)
    lines = throttle.take_all()
    assert len(lines) == MOST_WAITING
    assert lines[0][LEFT_OUT] == MOST - MOST_WAITING
