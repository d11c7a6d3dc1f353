"""The largest entries of a folder: a folder is named as a whole unless one of its entries makes up most of its size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.code.largest import largest, size_text


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({}, []),
        ({"a": 1, "b": 3}, ["b 3", "a 1"]),
        ({"data/1": 4, "data/2": 4, "data/3": 4, "a": 5}, ["data/ 12", "a 5"]),
        ({"src/deep/model.pt": 90, "src/deep/a.py": 1, "src/b.py": 1, "a": 5}, ["src/deep/model.pt 90", "a 5"]),
    ],
)
def test_the_largest_entries_are_named(sizes: dict[str, int], expected: list[str]) -> None:
    assert [f"{path} {size}" for path, size in largest(sizes)] == expected


def test_at_most_ten_entries_are_named() -> None:
    assert [size for _, size in largest({str(number): number for number in range(1, 30)})] == list(range(29, 19, -1))


@given(st.dictionaries(st.from_regex(r"[ab]{1,2}(/[ab]{1,2}x){0,2}y", fullmatch=True), st.integers(1, 9)))
def test_no_entry_is_larger_than_the_whole(sizes: dict[str, int]) -> None:
    entries = largest(sizes, count=100)
    assert sum(size for _, size in entries) <= sum(sizes.values())
    assert all(path in sizes or path.endswith("/") for path, _ in entries)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (217_088, "212 KiB"), (1_363_149, "1.3 MiB"),
     (4 << 20, "4.0 MiB"), (1024 * 1024 - 1, "1.0 MiB"), (50 << 40, "51200 GiB")],
)  # fmt: skip
def test_sizes_are_written_for_people(size: int, text: str) -> None:
    assert size_text(size) == text
