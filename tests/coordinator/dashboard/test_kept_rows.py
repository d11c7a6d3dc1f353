"""Rows that are kept: when a row is made again, and how many stay."""

from typing import Any

from coordinator.dashboard.elements import Element
from coordinator.dashboard.pages.kept_rows import KeptRows


def test_a_row_is_made_again_if_and_only_if_it_shows_something_else() -> None:
    made = list[Any]()

    def make(*shown: Any) -> Element:
        made.append(shown)
        return Element("row", "row", shown)

    rows = KeptRows(make, most=2)
    first = rows.get("a", {"used": {"cpu": 1}}, 5.0)
    assert rows.get("a", {"used": {"cpu": 1}}, 5.0) is first
    assert rows.get("a", {"used": {"cpu": 2}}, 5.0).values == ({"used": {"cpu": 2}}, 5.0)
    assert rows.get("a", {"used": {"cpu": 2}}, 6.0).values == ({"used": {"cpu": 2}}, 6.0)
    assert len(made) == 3
    for name in "bcdef":
        rows.get(name)
    assert len(rows._rows) <= 2
