"""Measures how long a job of three ranks takes to run again after failures and resizes, on real kubelets or here.

One rule: a job runs again when each of its ranks has begun again, by the words of the ranks themselves. Nothing else of
the run counts, neither what torchq says nor the statuses of pods.
"""

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.errors import BenchError
from bench.report import Figures
from bench.support import stack
from bench.support.processes import room
from bench.support.restarts.ranked_job import RankedJob, Said
from crds.api_resources import NODES
from kube import client
from kube.client import KubernetesCluster
from kube.settings import ConnectionSettings

RESIZES = (3, 2, 4, 3)
"""The numbers of workers, one after the other; the job begins with two."""
TRAINERS = ("ends", "ignores")
"""What a trainer does on SIGTERM: it ends with 0 at once, or it goes on until its grace of 5 s is over."""
_POLL_SECONDS = 0.2
_SETTLE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the benchmark."""

    kubeconfig: str = ""
    """The kubeconfig of a cluster where torchq runs; if empty, the benchmark starts an embedded one."""
    namespace: str = "default"
    image: str = "python:3.11-slim"
    """An image with python3."""
    failures: int = 3
    """The number of failures of each job."""
    seconds: float = 300.0
    """The time limit of each restart."""


SHORT = Options(failures=1)


def run(options: Options) -> Figures:
    """Measure all rows of the table. Raises BenchError if a job does not run again."""
    if options.kubeconfig:
        cluster = client.connect(ConnectionSettings(kubeconfig=options.kubeconfig, user_agent="bench"))
        return _measure(cluster, options, "python3")
    with room(stack.STOP_SECONDS) as bench:
        running = stack.start(bench, stack.Size(cpus=8, workers=1))
        return _measure(running.cluster, options, sys.executable)


def _measure(cluster: KubernetesCluster, options: Options, python: str) -> Figures:
    figures: Figures = {"nodes": _nodes(cluster)}
    for trainer in TRAINERS:
        job = RankedJob(
            cluster=cluster,
            name=f"bench-restart-{trainer}",
            namespace=options.namespace,
            image=options.image,
            python=python,
            ignores_term=trainer == "ignores",
        )
        with job.submitted():
            figures[f"{trainer}_failures"] = [_fail(job, number + 1, options) for number in range(options.failures)]
    elastic = RankedJob(
        cluster=cluster,
        name="bench-restart-elastic",
        namespace=options.namespace,
        image=options.image,
        python=python,
        elastic=True,
    )
    with elastic.submitted():
        figures["resizes"] = [_resize(elastic, workers, options) for workers in RESIZES]
    return figures


def _fail(job: RankedJob, number: int, options: Options) -> Figures:
    """Have rank 1 fail, and return the seconds from its end until all ranks have begun again."""
    before = _settled(job, 3, options)
    ended = job.end(f"{job.name}-worker-0", number, options.seconds)
    if ended is None:
        raise BenchError(f"{job.name}: rank 1 did not end when it was asked to")
    boots = _again(job, 3, lambda boot: boot.time > ended, options)
    return _row(job, before, boots, ended) | {"restart_count": job.read().status.restart_count}


def _resize(job: RankedJob, workers: int, options: Options) -> Figures:
    """Change the number of workers, and return the seconds until all ranks of the new world have begun."""
    granted = job.read().spec.worker_count
    before = _settled(job, granted, options)
    asked = time.time()
    job.resize(workers)
    boots = _again(job, workers, lambda boot: boot.time > asked and boot.world == workers, options)
    return {"workers": f"{granted}-{workers}", **_row(job, before, boots, asked)}


def _row(job: RankedJob, before: dict[str, str], boots: dict[str, Said], since: float) -> Figures:
    pods = job.pods()
    return {
        "seconds": round(max(boot.time for boot in boots.values()) - since, 1),
        "same_pods": sum(pods.get(name) == uid for name, uid in before.items()),
    }


def _settled(job: RankedJob, ranks: int, options: Options) -> dict[str, str]:
    """Wait until the job and all its ranks have run for a while. Return the uids of the pods."""
    _again(job, ranks, lambda _: True, options)
    deadline = time.monotonic() + options.seconds
    while job.read().status.phase != "Running" or job.read().status.scaling is not None:
        _pause(job, deadline)
    threading.Event().wait(_SETTLE_SECONDS)
    return job.pods()


def _again(job: RankedJob, ranks: int, is_new: Callable[[Said], bool], options: Options) -> dict[str, Said]:
    """Wait until so many ranks, and no other pod, have begun as they should. Return their begins."""
    deadline = time.monotonic() + options.seconds
    while True:
        boots = job.boots()
        if len(boots) == len(job.pods()) == ranks and all(map(is_new, boots.values())):
            return boots
        _pause(job, deadline)


def _pause(job: RankedJob, deadline: float) -> None:
    """Wait a moment. Raises BenchError if the time is over, or the job has ended."""
    if job.elastic:
        job.save()
    status = job.read().status
    if status.is_finished or time.monotonic() > deadline:
        said = "; ".join(f"{each.type} {each.reason}: {each.message}" for each in status.conditions)
        raise BenchError(f"{job.name}: the ranks do not run again: {said}; begun: {job.boots()}")
    threading.Event().wait(_POLL_SECONDS)


def _nodes(cluster: KubernetesCluster) -> str:
    """Return the versions of the nodes' kubelets, for the reader of the figures."""
    infos = (node.get("status", {}).get("nodeInfo", {}) for node in cluster.list(NODES).items)
    return ", ".join(sorted({str(info.get("kubeletVersion")) for info in infos}))
