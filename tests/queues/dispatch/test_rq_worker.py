"""Real worker processes on a real Redis: runs, stops, killed workers and outages of Redis."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from queues import redis_keys
from queues.dispatch.redis_work import RedisWork
from queues.redis import connection
from tests.support import ports, redis_server
from tests.support.queues.builders import registration
from tests.support.queues.work_stage import SETTINGS, Stage
from tests.support.waiting import SECONDS, patient, until

PROMPT = replace(SETTINGS, dispatched_lease=2.0)
"""Settings with a short lease of dispatched keys, for the case that a worker dies before it begins on a batch."""


def test_every_key_runs_once_on_two_workers_and_rq_info_lists_them(stage: Stage) -> None:
    stage.start()
    stage.start()
    stage.started(2)
    names = [f"key-{number}" for number in range(300)]
    stage.offer(*names)
    stage.until(stage.settled)
    assert sorted(stage.runs("begin")) == sorted(stage.runs("end")) == sorted(names)
    pids = {line.split()[-1] for line in stage.client.lrange("runs", 0, -1)}
    assert len(pids) == 2
    shown = subprocess.run(
        [sys.executable, "-m", "rq.cli", "info", "--url", stage.url], capture_output=True, text=True, check=True
    ).stdout
    assert "torchq" in shown
    assert "2 workers, 1 queues" in shown


def test_a_thousand_runs_leave_no_keys_in_redis(stage: Stage) -> None:
    stage.start()
    stage.started()
    stage.offer("warm")
    stage.until(stage.settled)
    before = set(stage.client.keys("*"))
    for _ in range(4):
        stage.offer(*[f"key-{number}" for number in range(250)])
        stage.until(stage.settled)
    assert len(stage.runs("end")) == 1001
    # RQ's own locks and markers expire. Only a key without an expiry would exist for ever.
    until(lambda: not [key for key in set(stage.client.keys("*")) - before if stage.client.ttl(key) == -1])


def test_slow_key_does_not_block_other_keys(stage: Stage) -> None:
    stage.start(threads=2, slow=2 * SECONDS)
    stage.started()
    stage.offer("slow-1", "key-1")
    stage.until(lambda: "key-1" in stage.runs("end"))
    stage.offer("key-2")
    stage.until(lambda: "key-2" in stage.runs("end"))
    assert "slow-1" not in stage.runs("end")


def test_long_run_keeps_its_lease(stage: Stage) -> None:
    stage.start(slow=3 * SETTINGS.running_lease)
    stage.started()
    stage.offer("slow-1")
    stage.until(stage.settled)
    assert stage.runs("begin") == ["slow-1"]
    assert stage.client.lrange("runs", -1, -1)[0].startswith(b"end slow-1 1"), (
        "the worker must hold its lease to the end"
    )


def test_keys_of_a_killed_worker_run_on_another(stage: Stage) -> None:
    stage.work = RedisWork(stage.client, PROMPT)
    stage.start()
    stage.start()
    stage.started(2)
    names = ["exit-1", *[f"key-{number}" for number in range(40)]]
    stage.offer(*names)
    stage.until(stage.settled)
    assert set(stage.runs("end")) == set(names)
    assert stage.runs("begin").count("exit-1") >= 2  # the job runs more often if a lease ended early on a busy machine
    assert sorted(worker.poll() is None for worker in stage.workers) == [False, True]


def test_failing_run_backs_off_and_is_logged(stage: Stage) -> None:
    stage.start()
    stage.started()
    stage.offer("fail-1")
    stage.until(
        lambda: any(each.failures >= 3 for each in stage.work.inspect().records.values()),
    )
    until(lambda: "ValueError: this key always fails" in stage.log())
    assert "ERROR queues.dispatch.task_runner team/fail-1/uid: the run failed; it will be tried again" in stage.log()


def test_stop_signal_lets_runs_finish_and_takes_no_new_keys(stage: Stage) -> None:
    worker = stage.start(threads=2, slow=0.5)
    stage.started()
    stage.offer("slow-1")
    stage.until(lambda: stage.runs("begin"))
    worker.send_signal(signal.SIGTERM)
    until(lambda: not stage.client.exists(redis_keys.MEMBERS))
    stage.offer("key-1")
    assert stage.work.dispatch() == 0
    assert worker.wait(patient(SECONDS)) == 0
    assert stage.runs("end") == ["slow-1"]
    assert not stage.client.zcard("torchq:work:leases")
    assert stage.client.scard("rq:workers") == 0


def test_stop_returns_keys_that_have_not_started(stage: Stage) -> None:
    worker = stage.start(threads=1, slow=0.5)
    stage.started()
    stage.work.register(registration("more", 10))
    stage.offer("slow-1", "key-1", "key-2", "key-3")
    stage.until(lambda: stage.runs("begin") and stage.client.llen(redis_keys.RQ_WAITING) < 4)
    worker.send_signal(signal.SIGINT)
    assert worker.wait(patient(SECONDS)) == 0
    stage.start()
    stage.until(stage.settled)
    assert sorted(stage.runs("end")) == ["key-1", "key-2", "key-3", "slow-1"]


def test_drain_ends_after_its_time_limit(stage: Stage) -> None:
    worker = stage.start(slow=2 * SECONDS, drain=0.5)
    stage.started()
    stage.offer("slow-1")
    stage.until(lambda: stage.runs("begin"))
    started = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(patient(SECONDS)) == 0
    assert time.monotonic() - started >= 0.5
    assert "stopped with 1 keys still running" in stage.log()[-1]
    stage.start(slow=0.1)
    stage.until(lambda: stage.runs("end") == ["slow-1"])


def test_second_stop_signal_ends_the_worker_at_once(stage: Stage) -> None:
    worker = stage.start(slow=2 * SECONDS)
    stage.started()
    stage.offer("slow-1")
    stage.until(lambda: stage.runs("begin"))
    worker.send_signal(signal.SIGTERM)
    until(lambda: (worker.send_signal(signal.SIGTERM), worker.poll() is not None)[1])
    assert worker.poll() in (128 + signal.SIGTERM, -signal.SIGTERM)  # a worker that drains ends with 0


@pytest.fixture
def port() -> Iterator[int]:
    with ports.reserve() as port:
        yield port


@pytest.mark.servers
def test_worker_survives_a_redis_outage(tmp_path: Path, port: int) -> None:
    password = secrets.token_hex(8)
    arguments = ["--port", str(port), "--requirepass", password, "--appendonly", "yes", "--dir", str(tmp_path)]
    stage = Stage(f"redis://:{password}@127.0.0.1:{port}/0", tmp_path)
    worker = stage.start(slow=1.0)
    try:
        until(lambda: any("does not answer" in line for line in stage.log()))
        for name in ("key-1", "key-2"):
            with redis_server.running(tmp_path / "socket", *arguments, url=stage.url):
                stage.client.mset({redis_keys.EPOCH: 1, redis_keys.LAYOUT: redis_keys.LAYOUT_NUMBER})
                stage.started()
                stage.offer(name)
                stage.until(lambda name=name: name in stage.runs("end"))  # type: ignore[misc]
            assert not connection.is_reachable(stage.url)
            os.kill(worker.pid, 0)
    finally:
        stage.close()
    text = "\n".join(stage.log())
    assert f"Redis at redis://127.0.0.1:{port}/0 does not answer" in text
    assert password not in text
    assert "Traceback" not in text
    assert len(stage.log()) < 12, text


def test_worker_registers_again_after_redis_was_emptied(stage: Stage) -> None:
    stage.start()
    stage.started()
    stage.reset()
    stage.client.set(redis_keys.EPOCH, 2)
    stage.offer("key-1")
    stage.until(lambda: stage.runs("end") == ["key-1"])
