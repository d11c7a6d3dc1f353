"""RQ reads the job records that torchq's script writes, and torchq's job class runs no other function."""

import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rq import Callback, Queue, SimpleWorker
from rq.job import Job, JobStatus
from rq.serializers import DefaultSerializer, JSONSerializer
from rq.timeouts import TimerDeathPenalty

from crds.keys import JobKey
from queues import redis_keys
from queues.dispatch import rq_job, rq_worker
from queues.dispatch.intake import Intake
from queues.dispatch.redis_work import RedisWork
from queues.dispatch.task_runner import TaskRunner
from queues.inspection import rq_record
from queues.redis import connection
from queues.redis.log_throttle import OutageLog
from queues.registrations import StoreIdentity
from queues.tasks import Offer
from queues.work import Lease
from tests.support.queues.builders import registration

KEYS = [JobKey("team", f"job-{number}", f"uid-{number}") for number in range(3)]


@pytest.fixture
def work(client: connection.Connection) -> RedisWork:
    """Return a work queue with three ready keys."""
    client.mset({redis_keys.EPOCH: 1, redis_keys.LAYOUT: redis_keys.LAYOUT_NUMBER})
    work = RedisWork(client)
    work.register(registration("w1", 3))
    work.offer([Offer(key=key, tenant="a") for key in KEYS] * 2)
    return work


@pytest.fixture
def taken() -> list[Lease]:
    """Return a list that collects the leases passed to the function of the job."""
    return []


@pytest.fixture
def worker(client: connection.Connection, taken: list[Lease]) -> rq_worker.BatchWorker:
    """Return torchq's RQ worker with a function that only records its leases."""
    return rq_worker.BatchWorker(
        [rq_job.QUEUE],
        connection=client,
        job_class=rq_job.bind(taken.extend),
        serializer=JSONSerializer,
        worker_ttl=30,
    )


def batches(client: connection.Connection) -> list[Job]:
    return [Job.fetch(job_id, client, serializer=JSONSerializer) for job_id in _queue(client).job_ids]


def _queue(client: connection.Connection) -> Queue:
    return Queue(rq_job.QUEUE, connection=client, serializer=JSONSerializer)


def rq_keys(client: connection.Connection) -> set[str]:
    return {key.decode() for key in client.keys("rq:*") if not key.startswith(b"rq:worker")}


def test_rq_reads_the_job_record_written_by_the_script(client: connection.Connection, work: RedisWork) -> None:
    assert work.dispatch() == 3
    assert [queue.name for queue in Queue.all(connection=client)] == [rq_job.QUEUE]
    first, *_ = found = batches(client)
    assert len(found) == 2, "three keys ready for one worker go in two batches"
    assert first.func_name == rq_job.FUNCTION
    assert [JobKey.parse(key) for job in found for key, _ in job.args[0]] == KEYS
    assert (first.kwargs, first.instance) == ({}, None)
    assert (first.origin, first.get_status(), first.description) == (rq_job.QUEUE, JobStatus.QUEUED, "2 keys")
    assert (first.timeout, first.result_ttl, first.failure_ttl) == (120, 0, 3600)
    assert first.enqueued_at == first.created_at
    assert abs(datetime.now(UTC) - first.created_at.replace(tzinfo=UTC)) < timedelta(minutes=1)
    assert 3500 < client.ttl(first.key) <= 3600


def test_job_record_equals_the_one_that_rq_would_write(client: connection.Connection, work: RedisWork) -> None:
    work.dispatch()
    job = batches(client)[0]
    ours = client.hgetall(job.key)
    job.save()
    theirs = client.hgetall(job.key)
    assert {name: theirs[name] for name in ours if name != b"data"} == {k: v for k, v in ours.items() if k != b"data"}


def test_repeated_dispatch_script_loses_no_key(
    client: connection.Connection, work: RedisWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client repeats a call whose answer was lost, with the same arguments."""
    monkeypatch.setattr("secrets.token_hex", lambda _: "same")
    first = work.dispatch()
    waiting = client.lrange(redis_keys.RQ_WAITING, 0, -1)
    client.delete(redis_keys.RQ_WAITING)
    work.register(registration("w2", 3))
    work.offer([Offer(key=JobKey("team", f"more-{number}", "uid"), tenant="a") for number in range(3)])
    assert first == work.dispatch() == 3
    client.rpush(redis_keys.RQ_WAITING, *waiting)
    leases = [lease for job in batches(client) for lease in rq_record.parse_leases(job.args[0])]
    assert len(leases) == len({token for _, token in leases}) == 6
    assert len(work.begin(leases)) == 6


@pytest.mark.usefixtures("own_signals")
def test_stock_rq_worker_runs_a_batch_and_leaves_no_keys(
    client: connection.Connection, work: RedisWork, taken: list[Lease]
) -> None:
    work.dispatch()
    stock = SimpleWorker(
        [rq_job.QUEUE], connection=client, job_class=rq_job.bind(taken.extend), serializer=JSONSerializer
    )
    stock.death_penalty_class = TimerDeathPenalty
    assert stock.work(burst=True)
    assert [key for key, _ in taken] == KEYS
    assert len(work.begin(taken)) == 3
    assert rq_keys(client) == {"rq:queues"}


def test_batch_worker_runs_a_batch_and_leaves_no_keys(
    client: connection.Connection, work: RedisWork, worker: rq_worker.BatchWorker, taken: list[Lease]
) -> None:
    work.dispatch()
    while worker.run_next(None):
        pass
    assert [key for key, _ in taken] == KEYS
    assert rq_keys(client) == {"rq:queues"}


def test_job_with_another_function_is_refused(
    client: connection.Connection,
    worker: rq_worker.BatchWorker,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    proof = tmp_path / "proof"
    job = _queue(client).enqueue("os.system", f"touch {proof}")
    with caplog.at_level(logging.WARNING):
        assert worker.run_next(None)
    assert not proof.exists()
    assert job.get_status() == JobStatus.FAILED
    [line] = [record.getMessage() for record in caplog.records if record.name == "queues.dispatch.rq_worker"]
    assert line.startswith(f"refused: RQ job {job.id}: it names 'os.system'")
    assert not any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize("batch", [[["no-key", "t"]], [["a/b/c"]], "text", {"a": 1}, [[1, 2]], None])
def test_job_with_an_invalid_batch_is_refused(
    client: connection.Connection, worker: rq_worker.BatchWorker, taken: list[Lease], batch: object
) -> None:
    job = _queue(client).enqueue(rq_job.FUNCTION, batch)
    assert worker.run_next(None)
    assert job.get_status() == JobStatus.FAILED
    assert taken == []


def test_callbacks_of_a_foreign_job_are_not_called(
    client: connection.Connection, worker: rq_worker.BatchWorker, taken: list[Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[object] = []
    monkeypatch.setattr("os.abort", lambda *_: called.append(1))
    callback = Callback("os.abort")
    leases = [[str(KEYS[0]), "token"]]
    _queue(client).enqueue(rq_job.FUNCTION, leases, on_success=callback, on_failure=callback, on_stopped=callback)
    _queue(client).enqueue("os.abort", on_failure=callback)
    while worker.run_next(None):
        pass
    assert taken == [(KEYS[0], "token")]
    assert called == []


class Pickled:
    """An object that creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (self.path,)


def test_pickled_job_is_refused_without_loading_the_pickle(
    client: connection.Connection, worker: rq_worker.BatchWorker, taken: list[Lease], tmp_path: Path
) -> None:
    proof = tmp_path / "proof"
    queue = Queue(rq_job.QUEUE, connection=client, serializer=DefaultSerializer)
    job = queue.enqueue(rq_job.FUNCTION, Pickled(proof))
    assert worker.run_next(None)
    assert not proof.exists()
    assert job.get_status() == JobStatus.FAILED
    assert taken == []


def test_broken_job_record_is_skipped_and_the_next_job_runs(
    client: connection.Connection, work: RedisWork, worker: rq_worker.BatchWorker, taken: list[Lease]
) -> None:
    client.hset("rq:job:broken", mapping={"data": json.dumps(["f", None, [], {}]), "timeout": "soon"})
    work.dispatch()
    client.lpush(redis_keys.RQ_WAITING, "broken")
    while worker.run_next(None):
        pass
    assert len(taken) == 3


@pytest.mark.parametrize(("owner", "takes"), [("theirs", False), ("ours", True)])
def test_only_a_worker_of_the_installation_of_the_store_takes_batches(
    work: RedisWork,
    worker: rq_worker.BatchWorker,
    taken: list[Lease],
    monkeypatch: pytest.MonkeyPatch,
    owner: str,
    takes: bool,
) -> None:
    monkeypatch.setattr(rq_worker, "POP_SECONDS", 0.01)
    work.dispatch()
    intake = Intake(owner="ours")
    intake.learn(StoreIdentity(redis_keys.OWN_LAYOUT, 1, owner))
    runner = TaskRunner(work, lambda *_: None, 1, outage=OutageLog(logging.getLogger("test")))
    turns = iter((False, True))
    worker.loop(runner, lambda: next(turns), intake)
    assert bool(taken) is takes
