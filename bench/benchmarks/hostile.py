"""The effect of one tenant's attack on another tenant: times from submission to admission, with and without the attack.

One rule: both tenants have only the rights of their accounts. The attacker submits jobs that its role may write and the
API server accepts. The other tenant's jobs arrive at a fixed rate, independent of earlier jobs
(`bench.support.open_loop`).

    names      suspended jobs, each with the name of another queue that does not exist
    victim     suspended jobs with the name of the other tenant's queue
    waiting    jobs that wait in the attacker's own queue, whose quota is one job
    failing    jobs whose containers fail at once, with the largest backoffLimit
    resources  held jobs that request invented resources, as many as a job may have, and different ones in each job
"""

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bench import report
from bench.benchmarks.latency import JobTimes
from bench.options import option
from bench.report import Figures
from bench.support import installation, manifests, open_loop, stack
from bench.support.installation import Installation
from bench.support.open_loop import Planned, Timetable
from bench.support.pod_player import FAILS_LABEL, RUN_LABEL
from crds.api_resources import NAMESPACES, TENANT_QUEUES
from crds.torchjob.demand import MOST_RESOURCES
from kube.api import Manifest

POOL = "cpu=1000000"
_POLL_SECONDS = 0.1
_QUIET_SECONDS = 2.0
"""The pause between the two measurements."""
MOST_RESTARTS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The size of the measurement."""

    attack: str = option("names", choices=("names", "victim", "waiting", "failing", "resources"))
    jobs: int = option(4_000, "jobs of the attacker")
    attack_rate: float = option(100.0, "jobs per second of the attacker; 0: all exist before the measurement", least=0)
    rate: float = option(5.0, above=0)
    """The other tenant's jobs per second."""
    seconds: float = option(60.0, least=1)
    """The length of each of the two measurements."""
    patience: float = option(60.0, least=1)
    """How long the measurement waits for admissions after the last arrival, in seconds. A job that is not admitted by
    then counts with the time that it has waited so far."""
    run_ms: int = 200
    """The run time of each pod."""
    workers: int = option(2)
    threads: int = 8
    """The most concurrent creates of each tenant."""


SHORT = Options(jobs=200, seconds=4.0)


def run(options: Options) -> Figures:
    """Start everything, and measure the other tenant first without and then with the attacker. Raises BenchError on
    failure."""
    with installation.running(workers=options.workers, settings={"TORCHQ_POOL": POOL}) as torchq:
        namespace, evil = torchq.namespace, f"{torchq.namespace}-evil"
        torchq.admin.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": evil}})
        quota = {"jobs": 1} if options.attack == "waiting" else {}
        torchq.admin.create(TENANT_QUEUES, manifests.queue(f"{namespace}-0", namespaces=[namespace]))
        torchq.admin.create(TENANT_QUEUES, manifests.queue(evil, namespaces=[evil], quota=quota))
        torchq.play_pods(8)
        with JobTimes(torchq) as times:
            alone = _measure(torchq, times, "alone", options)
            time.sleep(_QUIET_SECONDS)
            attack = _attack(torchq, evil, options)
            attacked = _measure(torchq, times, "attacked", options)
            return {
                "alone_ms": alone,
                "attacked_ms": attacked,
                "ratio_p50": round(attacked["p50"] / alone["p50"], 2),
                "ratio_p99": round(attacked["p99"] / alone["p99"], 2),
                "attack_over": attack.over(),
                **torchq.costs({}),
                "log_troubles": stack.troubles(torchq.bench.folder),
            }


def _attack(torchq: Installation, evil: str, options: Options) -> Timetable:
    """Start the attack. With no rate, wait until all its jobs exist."""
    rate = options.attack_rate
    jobs = [
        Planned(number / rate if rate else 0.0, attacking(options.attack, torchq.namespace, number))
        for number in range(options.jobs)
    ]
    table = open_loop.prepare(torchq, evil, jobs, 1, options.threads, "attacker")
    table.open()
    if not rate:
        torchq.bench.wait(table.over, "the attacker", 10.0 + options.jobs / 20)
    return table


def _measure(torchq: Installation, times: JobTimes, name: str, options: Options) -> dict[str, float]:
    """Return the milliseconds from each job's arrival to its admission."""
    planned = list(plan(f"{torchq.namespace}-0", name, options))
    table = open_loop.prepare(torchq, torchq.namespace, planned, 1, options.threads, name)
    start = table.open()
    names, admitted = {item.job["metadata"]["name"]: item.due for item in planned}, times.ledger.admitted
    pause, deadline = threading.Event(), start + options.seconds + options.patience
    while time.monotonic() < deadline and not names.keys() <= admitted.keys():
        torchq.bench.keep_alive()
        pause.wait(_POLL_SECONDS)
    now = time.monotonic()
    return report.milliseconds([admitted.get(name, now) - start - due for name, due in names.items()])


def plan(queue: str, name: str, options: Options) -> Iterator[Planned]:
    """Yield the other tenant's jobs, evenly spaced."""
    for number in range(int(options.rate * options.seconds)):
        yield Planned(number / options.rate, job(f"{name}-{number}", queue, {RUN_LABEL: str(options.run_ms)}))


def job(
    name: str, queue: str, labels: Mapping[str, str], requests: Mapping[str, str] | None = None, **spec: Any
) -> Manifest:
    """Return a job with one pod, which no node runs."""
    return manifests.job(name, queue, {"Master": manifests.task(labels, requests)}, **spec)


def attacking(attack: str, namespace: str, number: int) -> Manifest:
    """Return a job of an attack on the tenant of a namespace."""
    name, own_queue = f"attack-{number}", f"{namespace}-evil"
    match attack:
        case "names":
            return job(name, f"invented-{number}", {}, suspend=True)
        case "victim":
            return job(name, f"{namespace}-0", {}, suspend=True)
        case "waiting":
            return job(name, own_queue, {RUN_LABEL: "3600000"})
        case "failing":
            return job(name, own_queue, {FAILS_LABEL: "1"}, backoffLimit=MOST_RESTARTS)
    requests = {f"example.com/r{number}-{index}": "1" for index in range(MOST_RESOURCES)}
    return job(name, own_queue, {}, requests, schedulingPolicy={"hold": True})
