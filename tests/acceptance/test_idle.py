"""The CPU use of an idle cluster."""

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
"""The largest accepted share of a core, for all processes of the cluster together."""
WINDOW_SECONDS = 10.0
WINDOWS = 6
"""The number of measurements. The lowest counts, because other programs on the machine can only raise the figure."""


def cpu_seconds(pids: set[int]) -> float:
    """Return user and system time of running processes and of their children that have ended."""
    fields = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids)
    return sum(sum(map(int, each[11:15])) for each in fields) / TICKS


def children(pid: int) -> set[int]:
    """Return the running descendants of a process."""
    found = {int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
    return found.union(*map(children, found))


def uptime() -> float:
    """Return the seconds since the start of the machine."""
    return float(Path("/proc/uptime").read_text().split()[0])


def share(stack: Stack) -> float:
    """Return the share of a core that the cluster uses during a window."""
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
    until(stack.is_settled)
    seen: list[float] = []
    while len(seen) < WINDOWS and min(seen, default=1.0) >= MOST:
        seen.append(share(stack))
    assert min(seen) < MOST, seen
