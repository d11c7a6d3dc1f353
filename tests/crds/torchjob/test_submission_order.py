"""The annotation with the order of submission within one second."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crds.torchjob import submission_order


@given(microseconds=st.integers(0, 10**17), place=st.integers(0, 10**6))
def test_read_returns_what_text_wrote(microseconds: int, place: int) -> None:
    written = submission_order.text(microseconds, place)
    assert submission_order.read(written) == written


@pytest.mark.parametrize("form", ["0.0", "1764000000123456.12", "007.01", "1" * 28 + ".1", "1." + "9" * 28])
def test_digits_a_dot_and_digits_are_a_valid_sequence(form: str) -> None:
    assert submission_order.read(form) == form


@pytest.mark.parametrize(
    "form",
    [
        *(None, "", ".", "1", "1.", ".1", "1.2.3", "1,2", "1..2", "1.2\n", "\n1.2", " 1.2", "1.2 ", "1 .2", "1_0.2"),
        *("+1.2", "-1.2", "1.+2", "1.-2", "1e3.2", "0x1.2", "nan", "٣.٤", "1٣.2", "²." + "1"),
        *("1" * 29 + ".1", "1" * 5000 + ".1", 1.5, 7, ["1.2"], {"1": "2"}),
    ],
)
def test_invalid_sequence_counts_as_absent(form: object) -> None:
    assert submission_order.read(form) == ""
