"""Patience: how long a test waits on a free machine, and on a busy machine."""

import itertools
import os

import pytest

from tests.support import waiting


@pytest.mark.parametrize(("tasks", "factor"), [(0.0, 1.0), (1.0, 1.0), (3.0, 3.0), (1000.0, waiting.SLOWEST)])
def test_patience_grows_with_the_tasks_that_want_a_processor(
    monkeypatch: pytest.MonkeyPatch, tasks: float, factor: float
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (tasks * (os.cpu_count() or 1), 0.0, 0.0))
    assert waiting.patient(10.0) == pytest.approx(10.0 * factor)


def test_a_wait_goes_on_while_the_machine_is_busy_and_ends_when_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = itertools.count()
    loads = itertools.chain([1e9, 1e9], itertools.repeat(0.0))
    monkeypatch.setattr(os, "getloadavg", lambda: (next(loads), 0.0, 0.0))
    with pytest.raises(AssertionError, match="last seen: 3"):
        waiting.until(lambda: next(looks), lambda _: False, 0.05, pause=0.06)
