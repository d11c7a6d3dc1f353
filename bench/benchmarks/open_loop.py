"""A process that creates objects on a timetable: `open_loop KUBECONFIG GATE PLAN NUMBER OF THREADS`.

One rule: what is due is begun when it is due, whatever became of the objects before it; and each line of the answer
says when that was, so that being late cannot be hidden.

PLAN is a file of JSON lines `[seconds since the start, namespace, manifest]` in the order of time, of which
this process takes every OF-th from NUMBER on. GATE is a file that appears with the start in it (`time.monotonic`, which
all processes of a machine share). The answer, PLAN.NUMBER.sent, has a line `[name, due, sent, answered]` for each.
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
from bench.support.processes import Bench
from crds.api_resources import TORCHJOBS
from kube import client, errors
from kube.api import Cluster, Manifest
from kube.settings import ConnectionSettings

AGENT = "bench-submitter"
_POLL_SECONDS = 0.005
_RETRY_SECONDS = 0.2
_LEAD_SECONDS = 0.5
"""From the gate's appearing to the start: everybody has seen it by then."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A job to be created so many seconds after the start."""

    due: float
    job: Manifest


@dataclass(frozen=True, slots=True)
class Sent:
    """A job that was created. Moments are `time.monotonic`."""

    due: float
    sent: float
    answered: float


@dataclass(frozen=True, slots=True)
class Timetable:
    """Jobs that processes of ours create as planned."""

    plan: Path
    gate: Path
    clients: int

    def open(self) -> float:
        """Let the processes begin; the moment of the start."""
        start = time.monotonic() + _LEAD_SECONDS
        draft = self.gate.with_suffix(".draft")
        draft.write_text(str(start))
        draft.replace(self.gate)
        return start

    def over(self) -> bool:
        """Whether all have been sent and answered."""
        return all(_answers(self.plan, number).exists() for number in range(self.clients))

    def sent(self) -> dict[str, Sent]:
        """When each job was due and was sent, by name. Once it is over."""
        texts = [_answers(self.plan, number).read_bytes() for number in range(self.clients)]
        rows = (orjson.loads(line) for text in texts for line in text.splitlines())
        return {name: Sent(due, sent, answered) for name, due, sent, answered in rows}


def prepare(
    bench: Bench,
    kubeconfig: str,
    namespace: str,
    jobs: Iterable[Planned],
    clients: int,
    threads: int,
    name: str = "submitter",
) -> Timetable:
    """Start the processes, called NAME-0 and so on; they are ready, and wait for the gate."""
    table = Timetable(bench.folder / f"{name}.plan", bench.folder / f"{name}.gate", clients)
    table.plan.write_bytes(lines(jobs, namespace))
    for number in range(clients):
        arguments = (kubeconfig, str(table.gate), str(table.plan), str(number), str(clients), str(threads))
        bench.start_python(f"{name}-{number}", "bench.benchmarks.open_loop", *arguments, stage=2)
    bench.wait_said([f"{name}-{number}" for number in range(clients)], "ready")
    return table


def lines(jobs: Iterable[Planned], namespace: str) -> bytes:
    """A plan as the processes read it."""
    ordered = sorted(jobs, key=lambda each: each.due)
    return b"\n".join(orjson.dumps([each.due, namespace, each.job]) for each in ordered)


def lateness(sent: Iterable[Sent]) -> Figures:
    """How much later than planned requests went out, and how long they took."""
    found = list(sent)
    return {
        "submit_late_ms": report.milliseconds([each.sent - each.due for each in found]),
        "submit_took_ms": report.milliseconds([each.answered - each.sent for each in found]),
    }


def main() -> None:
    """Create what is ours, write when, and stay until somebody ends us."""
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
    signal.pause()  # who started us would start us again


def _answers(plan: Path, number: int) -> Path:
    return plan.with_suffix(f".{number}.sent")


def create_all(
    create: Callable[[str, Manifest], object],
    planned: Sequence[tuple[float, str, Manifest]],
    start: float,
    threads: int,
) -> list[tuple[str, float, float, float]]:
    """One thread keeps the time; the others send."""
    rows: list[tuple[str, float, float, float]] = []

    def send(due: float, namespace: str, job: Manifest) -> None:
        sent = time.monotonic()
        create(namespace, job)
        rows.append((job["metadata"]["name"], due, sent, time.monotonic()))

    with ThreadPoolExecutor(threads) as pool:
        requests = []
        for offset, namespace, job in planned:
            due = start + offset
            if (left := due - time.monotonic()) > 0:
                time.sleep(left)
            requests.append(pool.submit(send, due, namespace, job))
    for request in requests:
        request.result()  # what the server refuses ends us, with its words in the log
    return rows


def _create(cluster: Cluster, namespace: str, job: Manifest) -> None:
    """Until it is there: a request that was not answered is sent again."""
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
