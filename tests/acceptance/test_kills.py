"""SIGKILL of any process while jobs start and end: no job is lost or run twice, and no quota is exceeded."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.acceptance.jobs import job, most_at_once, recording, spans
from tests.support.acceptance.stack import Stack, alive, fresh, until

pytestmark = pytest.mark.timeout(300)

Make = Callable[..., Stack]
CPUS, QUOTA, JOBS = 4, 1, 6
PROMPT = {
    "TORCHQ_LEASE_SECONDS": "4",
    "TORCHQ_RENEW_DEADLINE": "3",
    "TORCHQ_RENEW_SECONDS": "1",
    "TORCHQ_RUNNING_LEASE_SECONDS": "5",
    "TORCHQ_RESYNC_SECONDS": "20",
}
"""Shorter leases than usual, so that a killed process is detected sooner."""


@dataclass
class Stream:
    """Jobs of two queues, more than fit at once. One of the queues has a quota of one job."""

    stack: Stack
    records: Path

    def __post_init__(self) -> None:
        self.bound, self.free = fresh("bound"), fresh("free")
        self.stack.torchq("queue", "create", self.bound, "--quota", f"jobs={QUOTA}")
        self.stack.torchq("queue", "create", self.free, "--weight", "2")
        self.names = [f"{queue}-{number}" for number in range(JOBS // 2) for queue in (self.bound, self.free)]
        command = recording(self.records, 0.7)  # workers may outlive their master, so that every run is complete
        jobs = (job(name, command, queue=queue(name), workers=1, cleanPodPolicy="None") for name in self.names)
        self.stack.submit(*jobs)

    def flowing(self) -> None:
        """Wait until some pods run while other jobs still wait."""
        until(lambda: len(spans(self.records)) >= 3)

    def check(self) -> None:
        """Check that all jobs succeed, that each pod ran once, and that no quota was exceeded."""
        for name in self.names:
            assert self.stack.reach(name, "Succeeded")["status"].get("restartCount", 0) == 0
        found = until(lambda: spans(self.records), lambda found: all(span.ends for span in found))
        runs = Counter(span.pod for span in found)
        assert runs == {f"{name}-{pod}": 1 for name in self.names for pod in ("master-0", "worker-0")}
        assert [span for span in found if len(span.starts) != 1 or len(span.ends) != 1] == []
        assert most_at_once(span for span in found if span.job.startswith(self.bound)) <= QUOTA
        assert most_at_once(found) <= CPUS // 2
        until(self.stack.is_settled)


def queue(name: str) -> str:
    """Return the queue of a job of the stream."""
    return name.partition("-")[0]


@pytest.fixture(scope="module")
def victim(make_stack: Make) -> Stack:
    """Start the stack in which the tests of this module kill processes."""
    stack = make_stack(**PROMPT)
    assert stack.up().code == 0
    return stack


@pytest.fixture
def stream(victim: Stack, records: Path) -> Iterator[Stream]:
    yield Stream(victim, records)
    victim.clear()


@pytest.mark.parametrize("name", ["coordinator", "worker-0", "redis", "apiserver", "node"])
def test_jobs_run_exactly_once_if_one_process_is_killed(stream: Stream, name: str) -> None:
    stream.flowing()
    killed = stream.stack.kill(name)
    stream.check()
    until(
        lambda: stream.stack.pids().get(name, killed) != killed
    )  # jobs may finish before the killed process is restarted


def test_jobs_run_exactly_once_if_all_workers_are_killed(stream: Stream) -> None:
    stream.flowing()
    for name in ("worker-0", "worker-1"):
        stream.stack.kill(name)
    stream.check()


def test_jobs_run_exactly_once_if_the_supervisor_is_killed_and_started_again(stream: Stream) -> None:
    stream.flowing()
    stack, pids = stream.stack, stream.stack.pids()
    stack.kill("supervisor")
    # The old processes may still be ending while the new ones start.
    said = stack.up()
    assert said.code == 0, said
    stream.check()
    until(lambda: not any(map(alive, pids.values())))


def test_jobs_run_exactly_once_if_redis_is_killed_and_its_files_are_damaged(stream: Stream) -> None:
    stream.flowing()
    stack = stream.stack
    [manifest] = stack.layout.redis.glob("appendonlydir/*.manifest")
    manifest.write_text("damaged")
    stack.kill("redis")
    stream.check()
    assert list(stack.layout.redis.glob("unreadable/*.manifest"))
    assert "Redis could not read its append-only file" in stack.layout.logs("stack").read_text()
