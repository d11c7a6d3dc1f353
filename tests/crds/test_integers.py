"""Bounded integers from text that a user may have written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crds import integers

UNREADABLE = ["", "-1", "+1", " 1", "1 ", "1.0", "1e3", "0x1", "1_000", "٣", "²", "9" * 16, "9" * 60, "9" * 5000, "nan"]


@pytest.mark.parametrize("text", [*UNREADABLE, None, 7, 1.5, True, [1], {"a": 1}])
def test_invalid_integer_gives_the_default(text: object) -> None:
    assert integers.parse(text, -1) == -1


@given(st.integers(min_value=0, max_value=integers.LARGEST))
def test_integer_up_to_the_largest_is_read(number: int) -> None:
    assert integers.parse(str(number), -1) == number


@given(st.text())
def test_any_text_gives_an_integer_within_the_bounds(text: str) -> None:
    assert 0 <= integers.parse(text, 0) <= integers.LARGEST
