"""Text for a field of limited length is never cut within a word."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crds.excerpts import ELLIPSIS, ending, excerpt

NAMED = "cannot enter TORCHQ_VOLUME_DATA: no such folder"


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (len(NAMED), NAMED),
        (len(NAMED) - 1, "cannot enter TORCHQ_VOLUME_DATA: no such ..."),
        (36, "cannot enter TORCHQ_VOLUME_DATA: ..."),
        (35, "cannot enter ..."),
        (30, "cannot enter ..."),
        (16, "cannot enter ..."),
        (15, "cannot ..."),
        (9, "..."),
        (3, "..."),
    ],
)
def test_excerpt_keeps_the_words_that_fit(most: int, expected: str) -> None:
    assert excerpt(NAMED, most) == expected


def test_ending_keeps_the_last_words() -> None:
    assert ending(NAMED, 20) == "... no such folder"
    assert ending(NAMED, len(NAMED)) == NAMED


@given(st.text(alphabet="ab \n\t_", max_size=60), st.integers(3, 60))
def test_excerpt_never_cuts_a_word(text: str, most: int) -> None:
    found = excerpt(text, most)
    assert len(found) <= most
    if len(text) <= most:
        assert found == text
    else:
        head = found.removesuffix(ELLIPSIS)
        assert found != head
        words = head.split()
        assert words == text.split()[: len(words)]
    assert sorted(ending(text, most)) == sorted(excerpt(text[::-1], most))
