"""The output of columns and ages."""

from datetime import UTC, datetime, timedelta

import pytest

from coordinator.cli import output
from coordinator.wording import ages


def test_columns_are_aligned() -> None:
    text = output.columns(("NAME", "N"), [("a", 1), ("longer", 22)])
    assert text.splitlines() == ["NAME     N", "a        1", "longer   22"]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (7199, "119m"),
        (7200, "2h"),
        (12_000, "3h20m"),
        (172_800, "2d"),
        (446_400, "5d4h"),
    ],
)
def test_age_is_printed_in_the_largest_units(seconds: int, expected: str) -> None:
    now = datetime(2026, 1, 8, tzinfo=UTC)
    assert ages.age((now - timedelta(seconds=seconds)).isoformat(), now) == expected


def test_a_missing_timestamp_has_no_age() -> None:
    assert ages.age(None, datetime(2026, 1, 8, tzinfo=UTC)) == "-"
