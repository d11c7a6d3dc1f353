"""What a cluster costs that has nothing to do."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.acceptance.jobs import job
from tests.support.acceptance.stack import Stack, fresh, until

pytestmark = pytest.mark.acceptance

Make = Callable[..., Stack]
TICKS = os.sysconf("SC_CLK_TCK")
MOST = 0.03
"""Of a core, all processes of the cluster together."""
WINDOW_SECONDS = 10.0
WINDOWS = 6
"""The cheapest counts: what other programs do to caches and clocks is not the cluster's doing."""


def cpu_seconds(pids: set[int]) -> float:
    """User and system time of processes that run, and of those children of theirs that have ended."""
    fields = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids)
    return sum(sum(map(int, each[11:15])) for each in fields) / TICKS


def children(pid: int) -> set[int]:
    """The processes that a process has started and that run."""
    found = {int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
    return found.union(*map(children, found))


def uptime() -> float:
    """Seconds since the machine was started."""
    return float(Path("/proc/uptime").read_text().split()[0])


def share(stack: Stack) -> float:
    """How much of a core the cluster uses over a window."""
    parts = stack.pids()
    pids = {parts["supervisor"]} | children(parts["supervisor"])
    assert pids >= set(parts.values())
    began, before = uptime(), cpu_seconds(pids)
    until(lambda: uptime() - began, lambda passed: passed >= WINDOW_SECONDS)
    return (cpu_seconds(pids) - before) / (uptime() - began)


@pytest.mark.timeout(300)
def test_an_idle_cluster_uses_less_than_three_hundredths_of_a_core(make_stack: Make) -> None:
    stack, name = make_stack(), fresh()
    assert stack.up().code == 0
    stack.submit(job(name, ["true"]))
    stack.reach(name, "Succeeded")
    until(stack.settled)
    seen: list[float] = []
    while len(seen) < WINDOWS and min(seen, default=1.0) >= MOST:
        seen.append(share(stack))
    assert min(seen) < MOST, seen
