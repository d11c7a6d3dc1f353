"""The records of the pods. Each run records its start, its end, and any other attempt of its job that runs.

One rule: pods know only three labels of torchq, and their records are evidence that needs no common clock.
"""

import copy
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos import plan
from tests.support.acceptance import jobs

RECORDING = """
import os, sys, time
folder, seconds, code = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
pod, attempt, restarts = (os.environ[each] for each in ("POD", "ATTEMPT", "RESTARTS"))
job = pod.rsplit("-", 2)[0]
def say(name, word):
    line = f"{word} {time.time():.3f} {os.getpid()}\\n".encode()
    file = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, line)
    os.close(file)
def runs(name):
    lines = [line.split() for line in open(os.path.join(folder, name))]
    if not lines or any(line[0] == "end" for line in lines):
        return False
    try:
        return folder.encode() in open(f"/proc/{lines[-1][2]}/cmdline", "rb").read()
    except OSError:
        return False
mine = "@".join((pod, attempt, restarts))
say(mine, "start")
noted = {name: name.split("@") for name in os.listdir(folder)}
for name, (other, number, _) in noted.items():
    if other.rsplit("-", 2)[0] == job and number != attempt and runs(name):
        say(mine, f"met:{name}")
def peers():
    return sum(name.split("@")[1] == attempt and name.rsplit("-", 2)[0] == job for name in os.listdir(folder))
time.sleep(seconds)
while os.environ.get("RANK") == "0" and peers() < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.02)
say(mine, "end")
sys.exit(code if os.environ.get("RANK") == "0" else 0)
"""
STORE = "import time; time.sleep(10_000)"
"""The program that stands for the rendezvous store. The pods of elastic jobs do not train and do not meet, so no store
is needed.
"""


@dataclass(frozen=True)
class Run:
    """The record of one run of a pod."""

    pod: str
    attempt: int
    restarts: int
    words: tuple[str, ...]

    @property
    def job(self) -> str:
        return self.pod.rsplit("-", 2)[0]

    @property
    def ended(self) -> bool:
        return "end" in self.words


def manifest(job: plan.Job, records: Path) -> dict[str, Any]:
    """Return the TorchJob of a planned job."""
    command = jobs.python(RECORDING, records, round(job.seconds, 2), job.code)
    found: dict[str, Any] = jobs.job(job.name, command, queue=job.queue, workers=job.workers)
    return _with_store(found) if job.elastic else found


def _with_store(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a job with a rendezvous store in place of its master, and a variable number of workers."""
    spec = manifest["spec"]
    store = copy.deepcopy(spec["torchTaskSpecs"].pop("Master"))
    [container] = store["template"]["spec"]["containers"]
    container |= {"resources": {"requests": {"cpu": f"{plan.STORE_CPU}m"}}, "command": jobs.python(STORE)}
    spec["torchTaskSpecs"]["Rendezvous"] = store
    spec["torchElasticPolicy"] = {"numMinReplicas": 1, "numMaxReplicas": plan.MOST_WORKERS}
    return manifest


def read(folder: Path) -> list[Run]:
    """Return all runs in the folder."""
    return [_run(Path(entry.path)) for entry in sorted(os.scandir(folder), key=lambda entry: entry.name)]


def wrong(found: Iterable[Run], planned: Iterable[plan.Job]) -> list[str]:
    """Return violations that no fault excuses: a repeated run, two attempts at once, or work done twice."""
    runs, planned = list(found), list(planned)
    elastic = {job.name for job in planned if job.elastic}  # workers of elastic jobs are removed and added again
    twice = [
        f"pod {run.pod} of attempt {run.attempt} ran twice"
        for run in runs
        if run.words.count("start") > 1 and run.job not in elastic
    ]
    met = [
        f"pod {run.pod} of attempt {run.attempt} started while another attempt ran: {word.removeprefix('met:')}"
        for run in runs
        for word in run.words
        if word.startswith("met:")
    ]
    masters = Counter(run.job for run in runs if run.ended and run.pod.endswith("-master-0"))
    again = [
        f"job {job.name} was done {masters[job.name]} times" for job in planned if _doubled(job, masters[job.name])
    ]
    return twice + met + again


def _doubled(job: plan.Job, times: int) -> bool:
    """Return whether a job did its work twice although its owner did nothing. A deed of the owner may have interrupted
    the end of the job.
    """
    return times > 1 and not job.deeds


def _run(file: Path) -> Run:
    pod, attempt, restarts = file.name.split("@")
    return Run(pod, int(attempt), int(restarts), tuple(line.split()[0] for line in file.read_text().splitlines()))
