"""Parallel work on many items with a limit, and the number of fence checks during this work."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from crds import labels
from crds.keys import JobKey
from reconcilers.apply.apply import FENCE_SECONDS, Application
from reconcilers.apply.parallel import ParallelRun
from reconcilers.reconcile import no_store
from reconcilers.settings import ReconcileSettings
from reconcilers.values import CreatePods, Plan

PATIENCE = 60.0


class Stop(Exception):
    """The error that a test raises on purpose."""


@pytest.fixture
def executor() -> Iterator[Executor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def go(
    executor: Executor,
    work: Callable[[int], None],
    count: int,
    most: int = 8,
    may_begin: Callable[[int], None] = lambda _: None,
) -> list[Exception]:
    return ParallelRun(work, range(count), executor, may_begin).run(most)


@pytest.mark.parametrize(("count", "most"), [(0, 8), (1, 8), (7, 8), (100, 8), (100, 3), (100, 1)])
def test_run_does_every_item_once_within_the_limit(executor: Executor, count: int, most: int) -> None:
    done, busy, busiest = list[int](), threading.Semaphore(most), [True]

    def work(thing: int) -> None:
        busiest.append(busy.acquire(blocking=False))
        done.append(thing)
        busy.release()

    assert go(executor, work, count, most) == []
    assert sorted(done) == list(range(count))
    assert all(busiest)


def test_slow_item_does_not_delay_others(executor: Executor) -> None:
    others = threading.Event()
    done = list[int]()

    def work(thing: int) -> None:
        if thing == 0:
            assert others.wait(PATIENCE)
        done.append(thing)
        if len(done) == 99:
            others.set()

    assert go(executor, work, 100) == []
    assert done[-1] == 0


def test_run_gives_up_its_threads_for_other_work(executor: Executor) -> None:
    """A run that uses all threads releases them repeatedly, long before its work is done."""
    all_busy, asked, turn = threading.Barrier(10), threading.Event(), threading.Event()

    def work(thing: int) -> None:
        if thing < 9:
            all_busy.wait(PATIENCE)
            assert asked.wait(PATIENCE)
        elif thing >= 100 or threading.current_thread().name.startswith("caller"):
            assert turn.wait(PATIENCE)  # the caller's own thread could finish all items before the other threads start

    with ThreadPoolExecutor(1, thread_name_prefix="caller") as caller:
        all_done = caller.submit(go, executor, work, 200, 9)
        all_busy.wait(PATIENCE)
        executor.submit(turn.set)
        asked.set()
        assert all_done.result(PATIENCE) == []


@pytest.mark.parametrize("most", [1, 8])
def test_run_begins_nothing_after_a_failure(executor: Executor, most: int) -> None:
    begun = list[int]()

    def work(thing: int) -> None:
        begun.append(thing)
        if thing >= 20:
            raise Stop(thing)

    failures = go(executor, work, 1_000, most)
    assert [each.args[0] for each in failures] == sorted(each for each in begun if each >= 20)
    assert failures
    assert len(begun) <= 20 + most


@pytest.mark.parametrize("most", [1, 8])
def test_run_begins_nothing_after_may_begin_raises(executor: Executor, most: int) -> None:
    begun = list[int]()

    def may_begin(at: int) -> None:
        if at == 20:
            raise Stop(at)

    (failure,) = go(executor, begun.append, 1_000, most, may_begin)
    assert failure.args == (20,)
    assert sorted(begun) == list(range(20))


@dataclass
class Fenced:
    """An API server that creates pods at once, a clock that advances per write, and a fence that counts its checks."""

    step: float
    """The seconds that each write takes."""
    now: float = 0.0
    asked: list[float] = field(default_factory=list)
    written: list[float] = field(default_factory=list)

    def create(self, *_: Any) -> dict[str, Any]:
        self.written.append(self.now)
        self.now += self.step
        return {"metadata": {"name": "made", "resourceVersion": "7"}, "spec": {}}

    def holds(self) -> bool:
        self.asked.append(self.now)
        return True


@pytest.mark.parametrize(
    ("step", "parallel", "questions"),
    [(0.0, 8, 4), (0.001, 8, 4), (0.6 * FENCE_SECONDS, 8, 16), (2 * FENCE_SECONDS, 8, 32), (0.0, 1, 32), (-1.0, 8, 32)],
)
def test_fence_is_checked_per_batch_and_when_its_answer_is_old(
    executor: Executor, step: float, parallel: int, questions: int
) -> None:
    server: Any = Fenced(step)
    settings = ReconcileSettings(parallel_writes=parallel, most_seconds=1_000.0)
    key = JobKey("n", "j", "u")
    application = Application(server, settings, executor, lambda: server.now, key, server.holds, no_store)
    over = threading.Event()
    for _ in range(8):  # all other threads are busy, so the clock advances in order
        executor.submit(over.wait, PATIENCE)
    metadata = {"annotations": {labels.CHARGE: '{"pods": 1}'}}
    application.run(Plan((CreatePods([{"metadata": {"name": str(each), **metadata}} for each in range(32)]),)))
    over.set()
    assert (len(server.written), len(server.asked)) == (32, questions)
