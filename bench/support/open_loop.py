"""A process that creates objects on a timetable: `open_loop KUBECONFIG GATE PLAN NUMBER OF THREADS`.

One rule: a request is sent when it is due, even if the requests before it are not answered. The output records the time
of each request, so that no delay is hidden.

PLAN is a file of JSON lines `[seconds since the start, namespace, manifest]` in the order of time. This process takes
every line whose number is NUMBER plus a multiple of OF. GATE is a file that appears with the start time as its content
(`time.monotonic`, which all processes of a machine share). The output, PLAN.NUMBER.sent, has one line `[name, due,
sent, answered]` per object.
"""

import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import orjson

from bench import report
from bench.report import Figures
from bench.support.installation import Installation
from crds.api_resources import TORCHJOBS
from kube import client, errors
from kube.api import Cluster, Manifest
from kube.settings import ConnectionSettings

AGENT = "bench-submitter"
_POLL_SECONDS = 0.005
_RETRY_SECONDS = 0.2
_LEAD_SECONDS = 0.5
"""The time from the gate's appearance to the start, in which every process sees the gate."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A job, and the number of seconds after the start at which to create it."""

    due: float
    job: Manifest


@dataclass(frozen=True, slots=True)
class Sent:
    """The times of a job that was created, by `time.monotonic`."""

    due: float
    sent: float
    answered: float


@dataclass(frozen=True, slots=True)
class Timetable:
    """The jobs that processes of the benchmark create on time."""

    plan: Path
    gate: Path
    clients: int

    def open(self) -> float:
        """Let the processes begin; return the time of the start."""
        start = time.monotonic() + _LEAD_SECONDS
        draft = self.gate.with_suffix(".draft")
        draft.write_text(str(start))
        draft.replace(self.gate)
        return start

    def over(self) -> bool:
        """Return whether all jobs have been sent and answered."""
        return all(_answers(self.plan, number).exists() for number in range(self.clients))

    def sent(self) -> dict[str, Sent]:
        """Return when each job was due and sent, by its name. Call it once all are answered."""
        texts = [_answers(self.plan, number).read_bytes() for number in range(self.clients)]
        rows = (orjson.loads(line) for text in texts for line in text.splitlines())
        return {name: Sent(due, sent, answered) for name, due, sent, answered in rows}


def prepare(
    torchq: Installation,
    namespace: str,
    jobs: Iterable[Planned],
    clients: int,
    threads: int,
    name: str = "submitter",
) -> Timetable:
    """Start the processes NAME-0, NAME-1 and so on, and return when all of them wait for the gate."""
    bench, kubeconfig = torchq.bench, torchq.server.kubeconfig
    table = Timetable(bench.folder / f"{name}.plan", bench.folder / f"{name}.gate", clients)
    table.plan.write_bytes(lines(jobs, namespace))
    for number in range(clients):
        arguments = (kubeconfig, str(table.gate), str(table.plan), str(number), str(clients), str(threads))
        bench.start_python(f"{name}-{number}", "bench.support.open_loop", *arguments, stage=2)
    bench.wait_said([f"{name}-{number}" for number in range(clients)], "ready")
    return table


def lines(jobs: Iterable[Planned], namespace: str) -> bytes:
    """Return a plan in the format that the processes read."""
    ordered = sorted(jobs, key=lambda planned: planned.due)
    return b"\n".join(orjson.dumps([planned.due, namespace, planned.job]) for planned in ordered)


def lateness(sent: Iterable[Sent]) -> Figures:
    """Return how late the requests were sent, and how long they took."""
    requests = list(sent)
    return {
        "submit_late_ms": report.milliseconds([request.sent - request.due for request in requests]),
        "submit_took_ms": report.milliseconds([request.answered - request.sent for request in requests]),
    }


def main() -> None:
    """Create this process's jobs, write the times, and wait for a signal."""
    kubeconfig, gate, plan, *numbers = sys.argv[1:]
    number, clients, threads = map(int, numbers)
    settings = ConnectionSettings(kubeconfig=kubeconfig, user_agent=AGENT, pool_connections=threads + 2)
    create = partial(_create, client.connect(settings))
    planned = Path(plan).read_bytes().splitlines()[number::clients]
    print("ready", flush=True)
    while not Path(gate).exists():
        time.sleep(_POLL_SECONDS)
    rows = create_all(create, [orjson.loads(line) for line in planned], float(Path(gate).read_text()), threads)
    answer = _answers(Path(plan), number)
    draft = answer.with_suffix(".draft")
    draft.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    draft.replace(answer)
    signal.pause()  # the supervisor would restart a process that ends


def _answers(plan: Path, number: int) -> Path:
    return plan.with_suffix(f".{number}.sent")


def create_all(
    create: Callable[[str, Manifest], object],
    planned: Sequence[tuple[float, str, Manifest]],
    start: float,
    threads: int,
) -> list[tuple[str, float, float, float]]:
    """Send the requests on time: this thread waits for the due times, and the others send."""
    rows: list[tuple[str, float, float, float]] = []

    def send(due: float, namespace: str, job: Manifest) -> None:
        sent = time.monotonic()
        create(namespace, job)
        rows.append((job["metadata"]["name"], due, sent, time.monotonic()))

    with ThreadPoolExecutor(threads) as pool:
        requests = []
        for offset, namespace, job in planned:
            due = start + offset
            if (remaining := due - time.monotonic()) > 0:
                time.sleep(remaining)
            requests.append(pool.submit(send, due, namespace, job))
    for request in requests:
        request.result()  # a request that the server refused ends this process, with the error in its log
    return rows


def _create(cluster: Cluster, namespace: str, job: Manifest) -> None:
    """Create a job; send the request again if it was not answered."""
    while True:
        try:
            cluster.create(TORCHJOBS, job, namespace)
            return
        except errors.AlreadyExists:
            return
        except (errors.Unreachable, errors.ServerError, errors.TooManyRequests) as error:
            print(f"WARNING {type(error).__name__}: {error}", flush=True)
            time.sleep(_RETRY_SECONDS)


if __name__ == "__main__":
    main()
