"""The spans that people ask about."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from history import spans
from history.errors import InvalidQuery
from history.store import Span

NOW = int(datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC).timestamp())
HOUR = 3600


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


@pytest.mark.parametrize(
    ("query", "start", "end"),
    [
        ({"month": "2026-11"}, "2026-11-01T00:00Z", "2026-12-01T00:00Z"),
        ({"month": "2025-12", "tz": "Asia/Kathmandu"}, "2025-11-30T18:15Z", "2025-12-31T18:15Z"),
        ({"since": "7d"}, "2026-11-22T12:00Z", "2026-11-29T12:00Z"),
        ({"since": "90m", "until": "1h"}, "2026-11-29T10:30Z", "2026-11-29T11:00Z"),
        ({"since": "2026-11-20", "tz": "America/New_York"}, "2026-11-20T05:00Z", "2026-11-29T12:00Z"),
        (
            {"since": "2026-11-20T09:14", "until": "2026-11-20 10:30:30+01:00"},
            "2026-11-20T09:14Z",
            "2026-11-20T09:30:30Z",
        ),
        ({"until": "2026-11-20"}, "1970-01-01T00:00Z", "2026-11-20T00:00Z"),
    ],
)
def test_a_query_means_a_span(query: dict[str, str], start: str, end: str) -> None:
    found = spans.parse(query, NOW)
    assert found is not None
    assert found.span == Span(at(start), at(end))


@pytest.mark.parametrize(
    ("query", "hours"),
    [
        ({"month": "2024-02"}, 29 * 24),
        ({"month": "2026-03", "tz": "Europe/Berlin"}, 31 * 24 - 1),
        ({"month": "2026-10", "tz": "Europe/Berlin"}, 31 * 24 + 1),
        ({"since": "2026-10-25", "until": "2026-10-26", "tz": "Europe/Berlin"}, 25),
        ({"since": "2026-10-25", "until": "2026-10-26", "tz": "UTC"}, 24),
    ],
)
def test_a_day_has_the_hours_that_the_clocks_of_its_zone_give_it(query: dict[str, str], hours: int) -> None:
    found = spans.parse(query, NOW)
    assert found is not None
    assert found.span.end - found.span.start == hours * HOUR


def test_a_query_without_times_has_no_span() -> None:
    assert spans.parse({"tz": "Europe/Berlin", "by": "user"}, NOW) is None


def test_this_month_is_that_of_the_zone() -> None:
    new_year = at("2025-12-31T23:30Z")
    assert spans.this_month(spans.parse_zone(""), new_year).start == at("2025-12-01T00:00Z")
    assert spans.this_month(spans.parse_zone("Europe/Berlin"), new_year).start == at("2025-12-31T23:00Z")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"month": "2026-13"}, "month: '2026-13' is not a month"),
        ({"month": "9999-12"}, "month: '9999-12' is not a month"),
        ({"month": "2026-12"}, "month: 2026-12 has not begun yet"),
        ({"month": "2026-11", "since": "7d"}, "month: name a month, or a time"),
        ({"since": "2026-02-29"}, "since: '2026-02-29' is not a time"),
        ({"since": "20261120"}, "is not a time"),
        ({"since": "7"}, "is not a time"),
        ({"since": "7d\n"}, "is not a time"),
        ({"since": "0001-01-01"}, "is not in the years from"),
        ({"since": "1926-11-29", "until": "2026-11-29"}, "is not in the years from"),
        ({"since": "1990-01-01"}, "a span has at most 3660 days"),
        ({"since": "999999w"}, "a span has at most 3660 days"),
        ({"since": "2026-12-01"}, "this time has not come yet"),
        ({"since": "1d", "until": "2d"}, "2026-11-28T12:00:00Z is not before 2026-11-27T12:00:00Z"),
        ({"until": "tomorrow"}, "until: 'tomorrow' is not a time"),
        ({"tz": "Moon"}, "tz: 'Moon' is not a time zone"),
        ({"tz": "Europe"}, "is not a time zone"),
        ({"tz": "../../etc/passwd"}, "is not a time zone"),
        ({"tz": "x" * 10_000}, "is not a time zone"),
    ],
)
def test_what_is_no_time_is_refused_in_words(query: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidQuery) as refusal:
        spans.parse(query, NOW)
    assert words in str(refusal.value)
    assert len(str(refusal.value)) < 200


TEXTS = st.text(max_size=40) | st.from_regex(
    r"[0-9]{1,9}[mhdw]|[0-9]{4}-[0-9]{2}(-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(Z|[+-][0-9]{2}:[0-9]{2})?)?)?"
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(("month", "since", "until", "tz"), TEXTS)))
def test_any_text_is_a_bounded_span_or_refused(query: dict[str, str]) -> None:
    try:
        found = spans.parse(query, NOW)
    except InvalidQuery:
        return
    assert found is None or 0 <= found.span.start < found.span.end < at("2300-01-01T00:00Z")
