"""Hostile RQ jobs: the worker refuses each job with one log line, in bounded memory, and loses no valid job."""

import json
import pickle
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from rq import Queue
from rq.job import JobStatus
from rq.serializers import DefaultSerializer, JSONSerializer

from queues import redis_keys
from queues.inspection import rq_record
from queues.inspection.rq_record import FUNCTION, InvalidBatch
from queues.redis import connection
from tests.support.queues.work_stage import Stage
from tests.support.waiting import until

SECRET = "s3cret-argument"
MEGABYTES = 20
TOKEN = "1-0123456789abcdef-1-1"


def peak_megabytes(pid: int) -> float:
    """Return the peak memory of a process in megabytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) / 1024


class Hostile:
    """Pushes jobs onto torchq's RQ queue, as every client that may write to Redis can."""

    def __init__(self, client: connection.Connection) -> None:
        self.client = client
        self.queue = Queue(redis_keys.RQ_QUEUE, connection=client, serializer=JSONSerializer)
        self.failed: set[str] = set()
        self.gone: set[str] = set()

    def calls(self, function: str, *arguments: Any, **named: Any) -> None:
        """Push a well-formed job that calls this function."""
        self.failed.add(self.queue.enqueue(function, *arguments, **named).id)

    def raw(self, name: str, removed: bool = True, **record: Any) -> None:
        """Push a job with a handmade record."""
        fields = {
            "created_at": "2026-01-01T00:00:00.000000Z",
            "status": "queued",
            "origin": redis_keys.RQ_QUEUE,
            **record,
        }
        self.client.hset(f"rq:job:{name}", mapping=fields)
        self.client.rpush(redis_keys.RQ_WAITING, name)
        (self.gone if removed else self.failed).add(name)


def attack(client: connection.Connection, proof: Path) -> Hostile:
    """Push one hostile job of every kind."""
    hostile = Hostile(client)
    command = f"touch {proof} # {SECRET}"
    hostile.calls("os.system", command)
    hostile.calls("subprocess.run", ["sh", "-c", command], shell=True)
    hostile.calls(FUNCTION)
    hostile.calls(FUNCTION, [], [])
    hostile.calls(FUNCTION, [], batch=SECRET)
    hostile.calls(FUNCTION, SECRET)
    hostile.calls(FUNCTION, [[SECRET]])
    hostile.calls(FUNCTION, [["team/a/u", 7]])
    hostile.calls(FUNCTION, [["../../etc/passwd/x", TOKEN]])
    hostile.calls(FUNCTION, [["team/a/u\n2026 INFO all is well", TOKEN]])
    hostile.calls(FUNCTION, [["team/" + "a" * 5000 + "/u", TOKEN]])
    hostile.calls(FUNCTION, [["team/a/u", "x" * 5000]])
    hostile.calls(FUNCTION, [["team/a/u", TOKEN]] * (rq_record.MOST_KEYS + 1))
    hostile.raw("instance", removed=False, data=json.dumps([FUNCTION, {"a": 1}, [[]], {}]))
    hostile.raw("arguments", removed=False, data=json.dumps([FUNCTION, None, None, {}]))
    hostile.raw("no-name", removed=False, data=json.dumps([["os.system"], None, [[]], {}]))
    hostile.raw("no-json", removed=False, data="os.system")
    hostile.raw("deep", removed=False, data="[" * 100_000 + "]" * 100_000)
    hostile.raw("pickle", removed=False, data=pickle.dumps(("os.system", None, (command,), {})))
    hostile.raw("elsewhere", removed=False, data=json.dumps(["os.system", None, [command], {}]), origin="other")
    hostile.raw("big", data=json.dumps([FUNCTION, None, [[["team/a/u", "t" * (MEGABYTES << 20)]]], {}]))
    hostile.raw("bomb", data=zlib.compress(b"[" + b" " * (MEGABYTES << 20), 9)[: rq_record.MOST_BYTES])
    hostile.raw("long", data="{}", description="x" * (MEGABYTES << 20))
    hostile.raw("times", data="{}", timeout=str(10**18))
    hostile.raw("dates", data="{}", created_at="yesterday")
    hostile.raw("status", data="{}", status="whatever")
    hostile.raw("no-data")
    client.set("rq:job:kind", SECRET)
    client.rpush(redis_keys.RQ_WAITING, "kind", "nothing-there", b"\xff\xfe", "a b", "../x", "n" * 10_000, "")
    hostile.gone.add("kind")
    pickled = Queue(redis_keys.RQ_QUEUE, connection=client, serializer=DefaultSerializer)
    hostile.failed.add(pickled.enqueue("os.system", command).id)
    return hostile


def test_worker_refuses_hostile_jobs_and_runs_valid_ones(stage: Stage, tmp_path: Path) -> None:
    worker = stage.start()
    stage.started()
    stage.offer("before")
    stage.until(lambda: stage.runs("end") == ["before"])
    quiet = peak_megabytes(worker.pid)
    proof = tmp_path / "proof"
    hostile = attack(stage.client, proof)
    until(lambda: not stage.client.exists(redis_keys.RQ_WAITING, redis_keys.RQ_INTERMEDIATE))
    stage.offer("after")
    stage.until(lambda: stage.runs("end") == ["before", "after"])
    assert worker.poll() is None
    assert not proof.exists()
    failed = {each.decode() for each in stage.client.zrange(redis_keys.RQ_REGISTRIES["failed"], 0, -1)}
    assert failed == hostile.failed
    assert not [name for name in hostile.gone if stage.client.exists(f"rq:job:{name}")]
    log = [line for line in stage.log() if not line.startswith("INFO")]
    assert all(line.startswith("WARNING queues.dispatch.rq_") and "refused" in line for line in log), log
    for job in hostile.failed | hostile.gone:
        assert sum(f"RQ job {job}:" in line for line in log) == 1, (job, log)
    assert not [line for line in log if SECRET in line]
    assert max(map(len, log)) < 300
    assert peak_megabytes(worker.pid) - quiet < MEGABYTES, "records that are longer than torchq's own are not read"


def test_hostile_rq_registries_do_not_stop_a_worker(stage: Stage) -> None:
    """RQ's cleanup reads these lists. An error in the cleanup must not end the loop of a worker."""
    stage.client.rpush(redis_keys.RQ_INTERMEDIATE, b"\xff", "a b")
    stage.client.zadd(redis_keys.RQ_STARTED, {"no-execution": 1, "a:b:c": 1})
    stage.client.set(redis_keys.RQ_REGISTRIES["failed"], "x")
    stage.client.sadd("rq:groups", "x")
    stage.start()
    stage.started()
    stage.offer("key-1")
    stage.until(lambda: stage.runs("end") == ["key-1"])
    warned = [line for line in stage.log() if line.startswith("WARNING")]
    assert len(warned) == 1
    assert "RQ's registries cannot be cleaned" in warned[0]


@pytest.mark.parametrize("reply", [b"x" * (rq_record.MOST_BYTES + 1), zlib.compress(b"x" * (rq_record.MOST_BYTES + 1))])
def test_decompress_rejects_a_record_that_is_too_long(reply: bytes) -> None:
    with pytest.raises(InvalidBatch, match="longer than"):
        rq_record.decompress(reply)


def test_largest_valid_batch_is_within_the_record_limit() -> None:
    key = f"{'n' * 63}/{'j' * 63}/{'u' * 36}"
    token = f"{2**40}-{'f' * 16}-{2**40}-32"
    data = json.dumps([FUNCTION, None, [[[key, token]] * 32], {}]).encode()
    assert len(data) < rq_record.MOST_BYTES / 10
    assert len(rq_record.parse_leases(json.loads(data)[2][0])) == 32
    assert rq_record.function_name({b"data": data}) == FUNCTION


@pytest.mark.parametrize(
    ("record", "name"),
    [
        ({b"data": b'["os.system", null, [], {}]'}, "os.system"),
        ({b"data": zlib.compress(b'["os.system", null, [], {}]')}, "os.system"),
        ({b"data": b"\x80\x04pickle"}, ""),
        ({b"data": b"[]"}, ""),
        ({b"data": b"7"}, ""),
        ({b"data": b"[[1]]"}, ""),
        ({}, ""),
    ],
)
def test_function_name_is_read_from_any_record_safely(record: dict[bytes, bytes], name: str) -> None:
    assert rq_record.function_name(record) == name


def test_refused_job_expires_like_a_batch(stage: Stage) -> None:
    stage.start()
    stage.started()
    job = Queue(redis_keys.RQ_QUEUE, connection=stage.client, serializer=JSONSerializer).enqueue("os.system", "true")
    until(lambda: job.get_status() == JobStatus.FAILED)
    assert 0 < stage.client.ttl(f"rq:job:{job.id}") <= rq_record.KEPT_SECONDS
