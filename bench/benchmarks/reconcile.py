"""Measures reconciles per second through the work queue and real worker processes.

Empty reconciles are compared with plain RQ jobs, and whole reconciles with the same API calls alone
(`bench.benchmarks.full_reconcile`).

One rule: the workers themselves count empty reconciles, from the first offer to the last run, and a key that runs twice
is an error.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.benchmarks import full_reconcile
from bench.errors import BenchError
from bench.options import option
from bench.report import Figures
from bench.support import empty_runs, redis_server
from bench.support.processes import Bench, room
from coordinator import settings
from crds.keys import JobKey
from queues import redis_keys
from queues.dispatch.redis_work import RedisWork
from queues.redis import connection
from queues.storage.redis_store import RedisStore
from queues.tasks import Offer

TENANTS = 8
_SECONDS = 300.0
_DEFAULTS = settings.resolve({}, {}, None).settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the benchmark."""

    keys: int = option(4_000)
    plain_jobs: int = option(300)
    """The number of plain RQ jobs; fewer than keys, since they are slower."""
    work_ms: float = option(0.0, "the sleep in each run", least=0)
    threads: int = option(_DEFAULTS.threads)
    sizes: tuple[int, ...] = option(full_reconcile.Options().sizes, "pods of a job", flags="--size")
    """One part of the measurement of whole reconciles each; if empty, no whole reconciles are run."""
    pods: int = option(full_reconcile.Options().pods, "pods of all jobs")
    real: bool = option(False, "reconcile on kube-apiserver and etcd (KUBEBUILDER_ASSETS)")


SHORT = Options(keys=2_000, plain_jobs=300, sizes=(1, 8), pods=32)


def run(options: Options) -> Figures:
    """Measure with one worker process and with two worker processes. Raises LocalError without a Redis server."""
    one, two = (_torchq(options, workers) for workers in (1, 2))
    plain_one, plain_two = (_plain(options, workers) for workers in (1, 2))
    return {
        "reconciles_per_s_1_worker": one,
        "reconciles_per_s_2_workers": two,
        "plain_rq_per_s_1_worker": plain_one,
        "plain_rq_per_s_2_workers": plain_two,
        "times_plain_rq_1_worker": one / plain_one,
        "times_plain_rq_2_workers": two / plain_two,
        **(_whole(options) if options.sizes else {}),
    }


def _whole(options: Options) -> Figures:
    """Measure whole reconciles with one worker process and with two worker processes."""

    def by(workers: int) -> Figures:
        installed = full_reconcile.Options(sizes=options.sizes, pods=options.pods, real=options.real, workers=workers)
        return full_reconcile.run(installed)

    return {"whole_1_worker": by(1), "whole_2_workers": by(2)}


def _torchq(options: Options, workers: int) -> float:
    with room() as bench:
        url = redis_server.start(bench)
        client = connection.connect(url, client_name="torchq-bench")
        RedisStore(client).rebuild(1, [], [])
        work = RedisWork(client)
        counter = bench.folder / "runs"
        arguments = (url, str(counter), str(options.threads), str(options.work_ms / 1000))
        for number in range(workers):
            bench.start_python(f"worker-{number}", "bench.support.empty_runs", *arguments, stage=1)
        _warm_up(bench, work, client, counter, workers)
        return _rate(counter, options.keys, lambda: work.offer(_offers(options.keys)), lambda: _dispatch(work))


def _plain(options: Options, workers: int) -> float:
    with room() as bench:
        url = redis_server.start(bench)
        counter = bench.folder / "runs"
        empty_runs.start(bench, url, workers)
        seconds = options.work_ms / 1000
        return _rate(
            counter,
            options.plain_jobs,
            lambda: empty_runs.push(url, options.plain_jobs, str(counter), seconds),
            lambda: time.sleep(_DEFAULTS.dispatch_seconds),
        )


def _warm_up(bench: Bench, work: RedisWork, client: connection.Connection, counter: Path, workers: int) -> None:
    """Wait until all workers have registered and one key has been reconciled."""
    bench.wait(lambda: _worker_count(client) == workers, f"{workers} workers")
    work.offer(_offers(1))
    bench.wait(lambda: work.dispatch() or _size(counter) == 1, "a first run")
    bench.wait(lambda: _size(counter) == 1, "a first run")
    counter.write_bytes(b"")


def _rate(counter: Path, runs: int, begin: Callable[[], None], pump: Callable[[], None]) -> float:
    started = time.perf_counter()
    begin()
    while (done := _size(counter)) < runs:
        if time.perf_counter() - started > _SECONDS:
            raise BenchError(f"only {done} of {runs} runs in {_SECONDS:.0f} s")
        pump()
    seconds = time.perf_counter() - started
    if _size(counter) > runs:
        raise BenchError(f"{_size(counter)} runs of {runs} keys: some ran twice")
    return runs / seconds


def _dispatch(work: RedisWork) -> None:
    """Dispatch as the coordinator does: without a pause while there is work to dispatch."""
    if not work.dispatch():
        time.sleep(_DEFAULTS.dispatch_seconds)


def _offers(keys: int) -> list[Offer]:
    return [
        Offer(
            key=JobKey(f"team-{number % TENANTS}", f"job-{number}", f"uid-{number}"), tenant=f"team-{number % TENANTS}"
        )
        for number in range(keys)
    ]


def _worker_count(client: connection.Connection) -> int:
    with connection.translate_errors(client):
        return int(client.hlen(redis_keys.MEMBERS))


def _size(counter: Path) -> int:
    try:
        return counter.stat().st_size
    except FileNotFoundError:
        return 0
