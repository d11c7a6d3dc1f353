"""Formatting and parsing of RFC 3339 times."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from crds import timestamps

MOMENT = datetime(2025, 1, 31, 12, 0, 5, 250_000, UTC)


def test_format_time_cuts_fractions_of_a_second_off() -> None:
    assert timestamps.format_time(MOMENT) == "2025-01-31T12:00:05Z"
    assert timestamps.format_time(MOMENT.timestamp() + 0.7) == "2025-01-31T12:00:05Z"


def test_format_time_pads_years_to_four_digits() -> None:
    assert timestamps.format_time(datetime(1, 2, 3, tzinfo=UTC)) == "0001-02-03T00:00:00Z"


def test_format_micro_time_keeps_microseconds() -> None:
    assert timestamps.format_micro_time(MOMENT.timestamp()) == "2025-01-31T12:00:05.250000Z"
    assert timestamps.format_micro_time(MOMENT.replace(microsecond=0)) == "2025-01-31T12:00:05.000000Z"


def test_time_of_another_zone_is_formatted_in_utc() -> None:
    moment = datetime(2025, 1, 31, 13, 0, 5, tzinfo=timezone(timedelta(hours=1)))
    assert timestamps.format_time(moment) == "2025-01-31T12:00:05Z"


def test_parse_reads_what_the_format_functions_write() -> None:
    assert timestamps.parse(timestamps.format_micro_time(MOMENT)) == MOMENT
    assert timestamps.parse_seconds(timestamps.format_micro_time(MOMENT)) == MOMENT.timestamp()


@pytest.mark.parametrize("text", ["", "yesterday", "2025-13-01T00:00:00Z"])
def test_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"isoformat|month"):
        timestamps.parse(text)
    assert timestamps.seconds_or_none(text) is None


@pytest.mark.parametrize("value", [None, 5, {}])
def test_value_other_than_text_is_not_a_time(value: object) -> None:
    assert timestamps.seconds_or_none(value) is None


def test_time_without_a_zone_counts_as_utc() -> None:
    assert timestamps.seconds_or_none("2025-01-31T12:00:05.25") == MOMENT.timestamp()
