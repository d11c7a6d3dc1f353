"""The metrics of a cluster of real processes agree with what has happened to its jobs."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.acceptance.jobs import job, python
from tests.support.acceptance.pages import Pages
from tests.support.acceptance.stack import Stack, fresh, torchq_command, until
from tests.support.ports import reserve

JOBS = 4


@dataclass(frozen=True)
class Workers:
    """A running `torchq worker` with two processes and one port."""

    url: str
    pid: int

    def take_work(self) -> bool:
        """Return whether the processes of the worker have begun to take work."""
        try:
            return Pages([self.url]).total("torchq_redis_up") == 1.0
        except OSError:
            return False

    def kill_processes(self) -> None:
        for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            os.kill(int(pid), signal.SIGKILL)


@pytest.fixture
def workers(stack: Stack, tmp_path: Path) -> Iterator[Workers]:
    with reserve() as port, (tmp_path / "log").open("wb") as log:
        settings = {
            "TORCHQ_METRICS_PORT": str(port),
            "TORCHQ_REDIS_URL": (stack.data / "redis-url").read_text(),
            "TORCHQ_MASTER_ADDRESS": "loopback",
            "TORCHQ_LOG_FORMAT": "json",
        }
        environment = {**stack.environment, **settings}
        with subprocess.Popen(torchq_command("worker", "--processes", "2"), env=environment, stderr=log) as begun:
            found = Workers(f"http://127.0.0.1:{port}", begun.pid)
            try:
                until(found.take_work)
                yield found
            finally:
                begun.terminate()
    for line in (tmp_path / "log").read_bytes().splitlines():
        assert json.loads(line).keys() >= {"time", "level", "logger", "message"}


def test_facts_count_once_over_all_processes_and_a_process_that_dies_lowers_no_counter(
    stack: Stack, workers: Workers
) -> None:
    queue = fresh("queue")
    stack.torchq("queue", "create", queue, "--weight", "3", "--quota", "jobs=2,cpu=1500m")
    status = json.loads(stack.local("status", "-o", "json").out)
    urls, token = status["metrics_url"], Path(status["metrics_token_file"]).read_text().strip()
    pages = [urls["coordinator"], urls["worker-0"], urls["worker-1"], workers.url]
    run_jobs(stack, queue)
    expected = {
        "torchq_admissions_total": JOBS,
        "torchq_jobs_finished_total/succeeded": JOBS - 1,
        "torchq_jobs_finished_total/failed": 1,
        "torchq_admission_wait_time_seconds_count": JOBS,
        "torchq_job_execution_seconds_count": JOBS,
        "torchq_queue_weight": 3,
        "torchq_queue_quota/jobs": 2,
        "torchq_queue_quota/cpu": 1.5,
        "torchq_queue_usage/jobs": 0,
        "torchq_pending_jobs/active": 0,
        "torchq_admitted_jobs": 0,
    }
    until(lambda: Pages(pages, token).of_queue(queue), lambda found: found.items() >= expected.items())

    before = Pages([workers.url]).of_queue(queue)
    workers.kill_processes()
    assert Pages([workers.url]).of_queue(queue).items() >= before.items()
    run_jobs(stack, queue)
    twice = {"torchq_admissions_total": 2 * JOBS, "torchq_jobs_finished_total/failed": 2}
    until(lambda: Pages(pages, token).of_queue(queue), lambda found: found.items() >= twice.items())

    stack.clear()
    until(lambda: [Pages([page], token).of_queue(queue) for page in pages], lambda found: not any(found))


def run_jobs(stack: Stack, queue: str) -> None:
    """Run JOBS jobs to their end. The first job fails."""
    codes = {fresh(): int(number == 0) for number in range(JOBS)}
    stack.submit(*(job(name, python(f"raise SystemExit({code})"), queue=queue) for name, code in codes.items()))
    for name, code in codes.items():
        stack.reach(name, "Failed" if code else "Succeeded")
