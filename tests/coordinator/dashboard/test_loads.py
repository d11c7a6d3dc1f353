"""Values that pages read for themselves, and how often."""

import threading

import pytest

from coordinator.dashboard.loads import KEPT_SECONDS, Loads
from tests.support.clock import Clock


def test_a_value_is_read_once_in_some_seconds_and_gets_the_value_before() -> None:
    clock = Clock()
    loads: Loads[list[int]] = Loads(2.0, clock=clock)
    found = []
    for _ in range(5):
        found.append(loads.get("a", lambda before: [*(before or []), 1]))
        clock.step(1.0)
    assert list(map(len, found)) == [1, 1, 2, 2, 3]
    assert loads.get("b", lambda before: [9] if before is None else []) == [9]


def test_an_error_keeps_the_value_before_and_is_tried_again() -> None:
    clock = Clock()
    loads: Loads[int] = Loads(2.0, clock=clock)

    def fail(_: int | None) -> int:
        raise ValueError("the server is away")

    assert loads.get("a", lambda _: 1) == 1
    clock.step(3.0)
    with pytest.raises(ValueError, match="is away"):
        loads.get("a", fail)
    assert loads.get("a", lambda before: 10 + (before or 0)) == 11


def test_values_that_nobody_asks_for_are_forgotten_and_there_are_never_more_than_the_most() -> None:
    clock = Clock()
    loads: Loads[str] = Loads(1000.0, most=2, clock=clock)
    loads.get("a", lambda _: "a")
    loads.get("b", lambda _: "b")
    loads.get("a", lambda _: "again")
    loads.get("c", lambda _: "c")
    assert loads.get("a", lambda _: "again") == "a"
    assert loads.get("b", lambda before: f"new {before}") == "new None"
    clock.step(KEPT_SECONDS + 1)
    assert loads.get("b", lambda before: f"new {before}") == "new None"
    loads.get("c", lambda before: f"{before}")
    assert loads.get("c", lambda _: "") == "None"


def test_a_server_that_hangs_keeps_one_page_waiting_and_others_see_the_value_before() -> None:
    clock = Clock()
    loads: Loads[str] = Loads(1.0, clock=clock)
    loads.get("a", lambda _: "old")
    clock.step(2.0)
    begun, free = threading.Event(), threading.Event()

    def hang(_: str | None) -> str:
        begun.set()
        free.wait()
        return "new"

    reader = threading.Thread(target=loads.get, args=("a", hang))
    reader.start()
    begun.wait()
    assert loads.get("a", hang) == "old"
    free.set()
    reader.join()
    assert loads.get("a", hang) == "new"


def test_a_value_that_has_just_been_changed_is_read_again_at_once() -> None:
    loads: Loads[int] = Loads(1000.0, clock=Clock())
    for key in ("a", "b"):
        loads.get(key, lambda _: 1)
    for key in ("a", "unknown"):
        loads.expire(key)
    assert [loads.get(key, lambda before: 10 + (before or 0)) for key in ("a", "b", "unknown")] == [11, 1, 10]
