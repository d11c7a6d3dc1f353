"""Run 24 real PyTorch jobs of three tenants on one small machine (`make demo`), or one elastic job (`--elastic`).

One rule: the demo uses only the command line and the API, as any user can, and it checks everything that its last line
states.
"""

import importlib.util
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import click
import yaml
from rich.console import Console

from crds.api_resources import TORCHJOBS
from examples.demo import cluster as clusters
from examples.demo import elastic, order, screen
from examples.demo.cluster import DemoFailed
from examples.demo.picture import Camera
from examples.demo.screen import Moment
from kube import client, errors
from kube.api import Cluster, Manifest
from kube.settings import ConnectionSettings

TRAINING = Path(__file__).parent.parent / "digits"
MISSING = 2
"""The exit code if PyTorch is not installed."""


def torchq(kubeconfig: Path, *arguments: str) -> str:
    """Run a command in the folder of the training (`clusters.torchq`)."""
    return clusters.torchq(kubeconfig, *arguments, folder=TRAINING)


def manifests(epochs: int) -> str:
    """Return YAML with eight TorchJobs for each queue. Each has a Master and a Worker with one CPU each."""
    base = yaml.safe_load((TRAINING / "torchjob.yaml").read_text())
    documents = []
    for queue in order.WEIGHTS:
        for number in range(order.JOBS):
            seed = len(documents)
            for task in base["spec"]["torchTaskSpecs"].values():
                container = task["template"]["spec"]["containers"][0]
                container["command"] = ["python", "train.py", "--epochs", str(epochs), "--seed", str(seed)]
            base["metadata"]["name"] = f"{queue}{number}"
            base["spec"]["schedulingPolicy"]["queue"] = queue
            documents.append(yaml.safe_dump(base))
    return "---\n".join(documents)


def submit(kubeconfig: Path, data: Path, epochs: int) -> None:
    """Create the queues on hold, submit all jobs, then resume the queues, so that only the weights decide the order."""
    for queue, weight in order.WEIGHTS.items():
        torchq(kubeconfig, "queue", "create", queue, "--weight", str(weight), "--hold")
    (data / "jobs.yaml").write_text(manifests(epochs))
    torchq(kubeconfig, "submit", str(data / "jobs.yaml"))
    torchq(kubeconfig, "queue", "resume", *order.WEIGHTS)


def admissions(jobs: Sequence[Manifest]) -> list[tuple[int, str]]:
    """Return the epoch and the queue of each admission from the jobs' statuses, in the order of the picks."""
    records = [job["status"]["admission"] for job in jobs if (job.get("status") or {}).get("admission")]
    records.sort(key=lambda admission: (admission["epoch"], admission["pick"]))
    return [(admission["epoch"], admission["queue"]) for admission in records]


FOR_PROGRAMS = ("torchq-report: ", "torchq-result: ")
"""The beginnings of lines with which training code tells numbers to programs."""


def last_lines(cluster: Cluster, jobs: Sequence[Manifest]) -> dict[str, str]:
    """Return the last line for people in the output of each running job's master."""
    lines = {}
    for job in jobs:
        if screen.phase(job) in ("Running", "Succeeded", "Failed"):
            name = job["metadata"]["name"]
            with suppress(errors.ClusterError):
                output = b"".join(cluster.logs(f"{name}-master-0", job["metadata"]["namespace"]))
                told = output.decode(errors="replace").strip().split("\n")
                lines[name] = next((line for line in reversed(told) if not line.startswith(FOR_PROGRAMS)), "")
    return lines


def watch(cluster: Cluster, view: screen.Screen, alive: Callable[[], None], deadline: float) -> list[Manifest]:
    """Show the jobs until all have ended, and return them. Raise DemoFailed if a job still runs at the deadline.

    `alive` is called in each round: it restarts processes of the stack that have ended.
    """
    lines: dict[str, str] = {}
    while True:
        alive()
        with suppress(errors.Unreachable, errors.ServerError):  # a process of the stack may be starting again
            jobs = cluster.list(TORCHJOBS, "default").items
            moving = [job for job in jobs if job["metadata"]["name"] not in lines or screen.phase(job) == "Running"]
            lines |= last_lines(cluster, moving)
            view.show(Moment(jobs, lines, [queue for _, queue in admissions(jobs)]))
            if all(screen.phase(job) in screen.FINAL for job in jobs):
                return jobs
        if time.monotonic() > deadline:
            raise DemoFailed("the jobs did not end within 10 minutes; see the logs in the folder below")
        time.sleep(0.25)


def check(jobs: Sequence[Manifest], view: screen.Screen) -> Counter[str]:
    """Return the picks per queue while all three had waiting jobs. Raise DemoFailed if a job or the order is wrong."""
    total = len(order.WEIGHTS) * order.JOBS
    succeeded = [job for job in jobs if screen.phase(job) == "Succeeded"]
    if len(succeeded) != total:
        failed = ", ".join(job["metadata"]["name"] for job in jobs if screen.phase(job) != "Succeeded")
        raise DemoFailed(f"only {len(succeeded)} of {total} TorchJobs succeeded; not: {failed}")
    admitted = admissions(jobs)
    queues = [queue for _, queue in admitted]
    view.say(f"order of admission: {' '.join(queues)}")
    jobs_by_queue = dict.fromkeys(order.WEIGHTS, order.JOBS)
    wrong = order.problem(admitted, order.WEIGHTS, jobs_by_queue)
    if wrong:
        raise DemoFailed(wrong)
    return Counter(order.contested(queues, jobs_by_queue))


def run(console: Console, data: Path, epochs: int, cpus: int, redis: str, picture: Path | None) -> None:
    """Run the whole demo. Raise DemoFailed if the cluster does not start, a job fails, or the order is wrong."""
    started = time.monotonic()
    kubeconfig = data / "kubeconfig"
    shown = screen.make(console)
    if picture is not None:
        shown = Camera(shown, kubeconfig, picture)
    with clusters.stack(data, cpus, redis) as supervisor, shown as view:
        view.say(f"embedded cluster: {cpus} CPUs, room for {cpus // 2} jobs at a time; queues a, b, c weigh 5, 2, 1")
        submit(kubeconfig, data, epochs)
        cluster = client.connect(ConnectionSettings(kubeconfig=str(kubeconfig)))
        jobs = watch(cluster, view, supervisor.step, started + 600)
        picks = check(jobs, view)
    counts = " ".join(f"{queue}={picks[queue]}" for queue in order.WEIGHTS)
    ended = f"{len(jobs)}/{len(jobs)} TorchJobs Succeeded in {time.monotonic() - started:.0f} s"
    console.print(f"demo: {ended}, picks {counts} while all waited", highlight=False, soft_wrap=True)


@click.command()
@click.option("--epochs", default=6, show_default=True, help="number of epochs of each job")
@click.option("--cpus", default=4, show_default=True, help="CPUs of the pool; a job takes 2")
@click.option("--redis", default="", help="URL of a running Redis (default: the demo starts its own)")
@click.option("--elastic", "is_elastic", is_flag=True, help="one elastic job that fills the machine and gives it back")
@click.option("--picture", type=click.Path(path_type=Path), help="write what `torchq top` shows as SVG to this folder")
@click.option("--keep", is_flag=True, help="keep the temporary folder with all logs")
def main(epochs: int, cpus: int, redis: str, is_elastic: bool, picture: Path | None, keep: bool) -> None:
    """Run TorchJobs of three tenants and show how torchq queues, picks and finishes them."""
    console = Console()
    if importlib.util.find_spec("torch") is None:
        missing = "demo: PyTorch is not installed; `make demo` installs it, or: pip install 'torchq-coordinator[demo]'"
        console.print(missing, markup=False, highlight=False, soft_wrap=True)
        sys.exit(MISSING)
    data = Path(tempfile.mkdtemp(prefix="torchq-demo-"))
    code = 1
    try:
        if is_elastic:
            elastic.run(console, data, redis)
        else:
            run(console, data, epochs, cpus, redis, picture)
        code = 0
    except DemoFailed as error:
        keep = True
        console.print(f"demo: FAILED: {error}", highlight=False, markup=False, soft_wrap=True)
    except KeyboardInterrupt:
        code = 130
        console.print("demo: interrupted; all its processes have ended")
    finally:
        if keep:
            console.print(f"logs and state: {data}", highlight=False, soft_wrap=True)
        else:
            shutil.rmtree(data, ignore_errors=True)
    sys.exit(code)


if __name__ == "__main__":
    os.environ.pop("KUBECONFIG", None)  # the demo uses only its own cluster
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the demo cleans up after SIGTERM as after Ctrl-C
    main()
