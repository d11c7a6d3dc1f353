"""How long an amount of room has been free, compared with the record of all amounts that were seen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queues.resizing.idle_growth import free_for, observe
from queues.resizing.values import Since


def seen(*free: int) -> tuple[Since, ...]:
    """Return the record after these amounts were free, one second after the other, from second 0 on."""
    steps: tuple[Since, ...] = ()
    for second, amount in enumerate(free):
        steps = observe(steps, amount, float(second))
    return steps


@given(free=st.lists(st.integers(-1, 5), min_size=1, max_size=40), seconds=st.integers(0, 40))
def test_amount_is_the_least_that_was_free_in_that_time(free: list[int], seconds: int) -> None:
    last = free[-1 - seconds :] if seconds < len(free) else [0]
    assert free_for(seen(*free), seconds, len(free) - 1.0) == max(0, min(last))


@given(st.lists(st.integers(0, 99), min_size=1, max_size=200))
def test_what_is_forgotten_counts_as_younger(free: list[int]) -> None:
    steps = seen(*free)
    assert len(steps) <= 16
    assert free_for(steps, 0, len(free) - 1.0) == free[-1]
    for seconds in range(len(free)):
        assert free_for(steps, seconds, len(free) - 1.0) <= min(free[-1 - seconds :])


@pytest.mark.parametrize("before", [2, 3])
@pytest.mark.parametrize(("now", "found"), [(0.0, 0), (29.0, 0), (30.0, 3)])
def test_clock_that_goes_back_makes_nothing_older_and_keeps_nobody_waiting(before: int, now: float, found: int) -> None:
    steps = observe(observe((), before, 50.0), 3, 0.0)
    assert free_for(steps, 30, now) == found
