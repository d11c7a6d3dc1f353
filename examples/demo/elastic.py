"""One elastic job fills an idle machine, and gives workers back when other tenants come (`--elastic`).

One rule: the job ends with the loss of a run alone. Its number of workers changes how fast it is, and nothing else.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from crds.api_resources import TORCHJOBS
from examples.demo import cluster
from examples.demo.cluster import DemoFailed
from kube import client, errors
from kube.api import Cluster, Manifest
from kube.settings import ConnectionSettings

TRAINING = Path(__file__).parent.parent / "elastic"
TENANTS = ("a", "b", "c")
MOST = 4
"""The most workers of the elastic job: with its store they fill the machine."""
CPUS = 4
WORKER_CPU = "900m"
LONG, SHORT = 400, 60
"""The steps of the elastic job, and of each job of the others."""
TOLERANCE = 0.01
"""How much the losses may differ, as a part: sums of floating-point numbers depend on their order."""
TIMEOUT_SECONDS = 480.0
_STEP = re.compile(r"^step (\d+) world (\d+) loss ([0-9.e+-]+)", re.MULTILINE)


@dataclass(slots=True)
class History:
    """The sizes that the elastic job had, and those while the jobs of the others ran."""

    sizes: list[int] = field(default_factory=list)
    shared: set[int] = field(default_factory=set)
    _beside: list[str] = field(default_factory=list)

    def note(self, size: int, beside: list[str]) -> bool:
        """Record a size, and whose jobs run beside the job; return whether anything is new."""
        if beside:
            self.shared.add(size)
        is_new = self.sizes[-1:] != [size]
        if is_new:
            self.sizes.append(size)
        is_new, self._beside = is_new or beside != self._beside, beside
        return is_new


def manifest(tenant: str, steps: int, record: Path, **policy: Any) -> Manifest:
    """Return a job of a tenant: with a policy the elastic one, else one of a single worker."""
    job: Manifest = yaml.safe_load((TRAINING / "job.yaml").read_text())
    job["metadata"]["name"] = tenant
    spec, worker = job["spec"], job["spec"]["torchTaskSpecs"]["Worker"]
    spec["schedulingPolicy"]["queue"] = tenant
    container = worker["template"]["spec"]["containers"][0]
    container["command"] = ["torchrun", "train.py", "--steps", str(steps), "--record", str(record)]
    container["resources"]["requests"]["cpu"] = WORKER_CPU
    worker["numTasks"] = 1
    if policy:
        spec["torchElasticPolicy"] = policy
    else:
        del spec["torchElasticPolicy"]
    return job


def run_alone(data: Path) -> float:
    """Train as many steps as the elastic job with one process and without a cluster; return the last loss."""
    record = data / "alone.txt"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1", "train.py"]
    command += ["--steps", str(LONG), "--step-seconds", "0", "--record", str(record)]
    command += ["--folder", str(data / "alone")]
    environment = {**os.environ, "TORCHQ_MAX_WORKERS": str(MOST)}
    done = subprocess.run(command, cwd=TRAINING, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise DemoFailed(f"the run alone failed: {done.stderr.strip()[-500:]}")
    return last_loss(record)


def last_loss(record: Path) -> float:
    """Return the loss of the last step in the file to which the workers of a job write their lines."""
    steps = _STEP.findall(record.read_text())
    if not steps or int(steps[-1][0]) != LONG:
        raise DemoFailed(f"the last step of {record} is not step {LONG}")
    return float(steps[-1][2])


def _submit(kubeconfig: Path, data: Path, *jobs: Manifest) -> None:
    path = data / "elastic.yaml"
    path.write_text(yaml.safe_dump_all(jobs))
    cluster.torchq(kubeconfig, "submit", str(path), folder=TRAINING)


def _jobs(api: Cluster) -> dict[str, Manifest]:
    """Return the jobs by tenant; none if a process of the stack is starting again."""
    with suppress(errors.Unreachable, errors.ServerError):
        return {job["metadata"]["name"]: job for job in api.list(TORCHJOBS, "default").items}
    return {}


def _phase(jobs: dict[str, Manifest], tenant: str) -> str:
    return str((jobs.get(tenant, {}).get("status") or {}).get("phase") or "")


def _size(job: Manifest) -> int:
    """Return the number of workers of a job, once all of them run."""
    status = job.get("status") or {}
    return 0 if status.get("scaling") else int((status.get("admission") or {}).get("workers") or 0)


def _follow(api: Cluster, alive: Callable[[], None], say: Callable[[str], None], others: Callable[[], None]) -> History:
    """Watch until all jobs have ended. The others come once the elastic job has filled the machine."""
    history, came, deadline = History(), False, time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        alive()
        jobs = _jobs(api)
        running = [tenant for tenant in TENANTS[1:] if _phase(jobs, tenant) == "Running"]
        if "a" in jobs and (size := _size(jobs["a"])) and history.note(size, running):
            beside = f" beside the jobs of {' and '.join(running)}" if running else ""
            say(f"the elastic job of a has {size} worker{'s' if size > 1 else ''}{beside}")
        if not came and history.sizes and history.sizes[-1] == MOST:
            say("jobs of b and c come")
            others()
            came = True
        if came and all(_phase(jobs, tenant) in ("Succeeded", "Failed") for tenant in TENANTS):
            _check(jobs)
            return history
        time.sleep(0.25)
    raise DemoFailed(
        f"the jobs did not end within {TIMEOUT_SECONDS / 60:.0f} minutes; see the logs in the folder below"
    )


def _check(jobs: dict[str, Manifest]) -> None:
    for tenant in TENANTS:
        status = jobs[tenant]["status"]
        if status["phase"] != "Succeeded" or status.get("restartCount"):
            restarts = status.get("restartCount", 0)
            raise DemoFailed(f"the job of {tenant} ended as {status['phase']} with {restarts} restarts")


def run(console: Console, data: Path, redis: str) -> None:
    """Run the whole demo. Raise DemoFailed if a job fails, or if the elastic job does not do what it should."""
    started, record, kubeconfig = time.monotonic(), data / "elastic.txt", data / "kubeconfig"

    def say(line: str) -> None:
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    alone = run_alone(data)
    say(f"a run alone ends with loss {alone:.5g}")
    policy = {"numMinReplicas": 1, "numMaxReplicas": MOST, "autoscale": "Idle", "resizeEverySeconds": 1}
    with cluster.stack(data, CPUS, redis, idle_seconds="2") as supervisor:
        for tenant in TENANTS:
            cluster.torchq(kubeconfig, "queue", "create", tenant, folder=TRAINING)
        _submit(kubeconfig, data, manifest("a", LONG, record, **policy))
        others = [manifest(tenant, SHORT, data / f"{tenant}.txt") for tenant in TENANTS[1:]]
        api = client.connect(ConnectionSettings(kubeconfig=str(kubeconfig)))
        history = _follow(api, supervisor.step, say, lambda: _submit(kubeconfig, data, *others))
    loss, least = last_loss(record), min(history.shared, default=MOST)
    if abs(loss - alone) > TOLERANCE * abs(alone):
        raise DemoFailed(f"the elastic job ended with loss {loss:.5g}, a run alone with {alone:.5g}")
    if least >= MOST:
        raise DemoFailed("the elastic job gave nothing back")
    sizes = " ".join(map(str, history.sizes))
    say(f"demo: sizes {sizes}, loss {loss:.5g} as alone ({alone:.5g}), in {time.monotonic() - started:.0f} s")
