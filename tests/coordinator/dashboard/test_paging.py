"""Long lists in pages, and the order of their rows."""

import pytest

from coordinator.dashboard import paging, paths
from coordinator.wording.columns import TableColumn

MANY = [*range(120)]


@pytest.mark.parametrize(
    ("number", "first", "last", "previous", "following"),
    [
        ("", 1, 50, "", "/x?sort=a&page=2"),
        ("2", 51, 100, "/x?sort=a", "/x?sort=a&page=3"),
        ("3", 101, 120, "/x?sort=a&page=2", ""),
        ("99", 101, 120, "/x?sort=a&page=2", ""),
        ("0", 1, 50, "", "/x?sort=a&page=2"),
        ("-1", 1, 50, "", "/x?sort=a&page=2"),
        ("9" * 5000, 1, 50, "", "/x?sort=a&page=2"),
        ("٣", 1, 50, "", "/x?sort=a&page=2"),
    ],
)
def test_a_page_out_of_range_is_the_nearest(number: str, first: int, last: int, previous: str, following: str) -> None:
    rows, pager = paging.cut(MANY, "/x", {"sort": "a", "page": number})
    assert [*rows] == MANY[first - 1 : last]
    assert (pager.first, pager.last, pager.total) == (first, last, 120)
    assert (pager.previous, pager.following) == (previous, following)


def test_an_empty_list_has_one_page() -> None:
    nothing: list[int] = []
    rows, pager = paging.cut(nothing, "/x", {})
    assert ([*rows], pager.first, pager.last, pager.previous, pager.following) == ([], 0, 0, "", "")


def test_a_heading_sorts_by_its_column_and_then_turns_the_order_around() -> None:
    assert paging.heading("Share", "share", "/", {"page": "3"}, kind="n").address == "/?sort=-share"
    found = paging.heading("Share", "share", "/", {"sort": "-share", "by": "x"}, kind="n")
    assert (found.address, found.order) == ("/?by=x&sort=share", "descending")
    found = paging.heading("Name", "name", "/", {"sort": "name"})
    assert (found.address, found.order) == ("/?sort=-name", "ascending")
    assert paging.heading("Name", "name", "/", {"sort": "share"}).order == "none"


def test_an_order_that_nobody_knows_is_the_usual_one() -> None:
    column = TableColumn("NAME", lambda item: item["name"])
    assert paging.sorted_by({"sort": "-name"}, {"name": column}) == (column, True)
    assert paging.sorted_by({"sort": "<script>"}, {"name": column}) == (None, False)
    assert paging.sorted_by({}, {"name": column}) == (None, False)


def test_addresses_quote_names() -> None:
    assert paths.of_queue("a/../b?c") == "/queues/a%2F..%2Fb%3Fc"
    assert paths.of_job("team/job#1") == "/jobs/team/job%231"
    assert paths.of_job("a job of another team") == ""
    assert paths.with_query("/x", {"a": "", "b": "&"}) == "/x?b=%26"
