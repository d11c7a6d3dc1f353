"""`torchq local down` and `up` again: training continues without failures, and jobs keep their admission."""

import importlib.util
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.acceptance.jobs import job
from tests.support.acceptance.stack import Stack, alive, clean_environment, fresh, torchq_command, until
from tests.support.waiting import patient

pytestmark = pytest.mark.timeout(300)

Make = Callable[..., Stack]
TRAIN = """
import os, signal, sys, time
folder, how = sys.argv[1:3]
rank = os.environ["RANK"]
place = os.path.join(folder, rank)
def note(word):
    with open(place, "a") as file:
        file.write(word + "\\n")
def save(*_):
    note("asked")
    while not os.path.exists(os.path.join(folder, "saved")):
        time.sleep(0.01)
    note("saved")
    sys.exit(int(how))
if how != "none":
    signal.signal(signal.SIGTERM, save)
note("started")
while not os.path.exists(os.path.join(folder, "done")):
    time.sleep(0.02)
"""
"""A rank that trains until the file `done` exists. On SIGTERM it waits for the file `saved` and exits with a code."""
TORCHRUN = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


class Training:
    """A job whose ranks record in files that they start, get SIGTERM and save."""

    def __init__(self, stack: Stack, folder: Path, how: str, *, workers: int = 0, program: str = "python", **spec: Any):
        self.stack, self.folder, self.name, self.ranks = stack, folder / fresh("training"), fresh(), workers + 1
        self.folder.mkdir()
        (script := self.folder / "train.py").write_text(TRAIN)
        body = job(self.name, [program, str(script), str(self.folder), how], workers=workers, cpu="250m", **spec)
        for task in body["spec"]["torchTaskSpecs"].values():
            task["template"]["spec"]["terminationGracePeriodSeconds"] = 60
        stack.submit(body)

    def noted(self, word: str) -> int:
        """Return how often all ranks together have recorded an event."""
        files = (self.folder / str(rank) for rank in range(self.ranks))
        return sum(file.read_text().split().count(word) for file in files if file.exists())

    def runs(self) -> None:
        self.stack.reach(self.name, "Running")
        until(lambda: self.noted("started"), lambda count: count >= self.ranks)

    def let(self, word: str) -> None:
        """Create a file for which the ranks wait: `saved` ends their saves, `done` ends their training."""
        (self.folder / word).touch()

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.stack.job(self.name)["status"]
        return found

    def went_on(self, times: int = 1) -> None:
        """Check that the job trains again, and that each stop counts as a disruption, not as a failure."""
        until(lambda: self.noted("started"), lambda count: count == self.ranks * (times + 1))
        self.stack.reach(self.name, "Running")
        status = self.status
        said = {name: status.get(name) for name in ("restartCount", "disruptions", "restartNotBefore", "nodeFailures")}
        assert said == {"restartCount": None, "disruptions": times, "restartNotBefore": None, "nodeFailures": None}


@pytest.fixture
def stack(make_stack: Make) -> Iterator[Stack]:
    made = make_stack()
    assert made.up().code == 0
    yield made
    made.local("down", "--now")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for each in tmp_path.iterdir():
        (each / "saved").touch()


def test_jobs_continue_after_local_down_without_failures_or_new_admissions(stack: Stack, folder: Path) -> None:
    limit = {"backoffLimit": 0}
    queue, narrow = fresh("queue"), fresh("narrow")
    stack.torchq("queue", "create", queue)
    stack.torchq("queue", "create", narrow, "--quota", "jobs=1")
    trainings = [
        Training(stack, folder, "0", queue=queue, **limit),
        Training(stack, folder, "1", queue=queue, policy="OnFailure", **limit),
        Training(stack, folder, "143", queue=queue, policy="ExitCode"),
        Training(stack, folder, "1", queue=queue, workers=3, **limit),
        Training(stack, folder, "none", queue=narrow, policy="ExitCode", **limit),
    ]
    for each in trainings:
        each.runs()
    waiting = [Training(stack, folder, "0", queue=narrow) for _ in range(2)]
    for each in waiting:
        stack.reach(each.name, "Queued")
    before = {each.name: stack.admission(each.name) for each in trainings}

    command = torchq_command("local", "down", "--data", str(stack.data))
    with subprocess.Popen(command, env=clean_environment(), stdout=subprocess.PIPE, text=True) as down:
        assert down.stdout is not None
        assert any("60 s at most" in line for line in down.stdout), "no message about the pods that end"
        until(lambda: [each.noted("asked") for each in trainings[:4]] == [1, 1, 1, 4])
        assert "is going down" in stack.local("status").out
        # A further SIGTERM must not shorten the grace period of the pods.
        os.kill(stack.supervisor(), signal.SIGTERM)
        for each in trainings:
            each.let("saved")
        assert "the cluster is down" in down.stdout.read()
        assert down.wait(patient()) == 0
    assert [each.noted("saved") for each in trainings[:4]] == [1, 1, 1, 4]
    assert not stack.pod_processes()

    assert stack.up().code == 0
    for each in trainings:
        each.went_on()
    assert {each.name: stack.admission(each.name) for each in trainings} == before
    assert [stack.phase(each.name) for each in waiting] == ["Queued", "Queued"]
    for each in (*trainings, *waiting):
        each.let("done")
    for each in (*trainings, *waiting):
        stack.reach(each.name, "Succeeded")
    first, second = (each.status["admission"]["pick"] for each in waiting)
    assert before[trainings[-1].name]["pick"] < first < second


@TORCHRUN
def test_a_torchrun_job_continues_after_local_down(stack: Stack, folder: Path) -> None:
    training = Training(stack, folder, "0", program="torchrun", workers=1, backoffLimit=0)
    training.runs()
    training.let("saved")
    assert stack.down().code == 0
    assert stack.up().code == 0
    training.went_on()
    training.let("done")
    stack.reach(training.name, "Succeeded")


def test_local_down_keep_leaves_pods_running_for_the_next_up(stack: Stack, folder: Path) -> None:
    training = Training(stack, folder, "1", workers=1, backoffLimit=0)
    training.runs()
    pids, uids = stack.pids(), {each["metadata"]["uid"] for each in stack.pods(training.name)}
    members = stack.pod_processes()
    assert len(members) == 2

    kept = stack.local("down", "--keep")
    assert (kept.code, f"2 pods of job default/{training.name} still run" in kept.out) == (0, True), kept
    assert not [name for name, pid in pids.items() if alive(pid)]
    assert stack.pod_processes() == members
    assert "still run" in stack.local("status").out
    assert stack.up().code == 0
    assert {each["metadata"]["uid"] for each in stack.pods(training.name)} == uids
    assert stack.pod_processes() == members
    assert (training.status["phase"], training.status.get("disruptions")) == ("Running", None)

    assert stack.local("down", "--keep").code == 0
    training.let("saved")
    down = stack.down()
    assert (down.code, training.noted("saved")) == (0, 2), down
    assert not stack.pod_processes()
    assert stack.up().code == 0
    training.went_on()


def test_local_down_continues_after_the_supervisor_is_killed_until_down_now(stack: Stack, folder: Path) -> None:
    training = Training(stack, folder, "0", backoffLimit=0)
    training.runs()
    stack.pods()
    command = stack.begin("down")
    until(lambda: training.noted("asked"))
    os.kill(stack.supervisor(), signal.SIGKILL)
    until(lambda: stack.local("status").out, lambda said: "is going down" in said and "still end" in said)
    late = stack.local("down", "--keep")
    assert (late.code, "too late" in late.err) == (1, True)
    assert stack.local("down", "--now").code == 0
    assert command().code == 0
    assert (training.noted("asked"), training.noted("saved")) == (1, 0)
    assert not stack.pod_processes()
    assert stack.up().code == 0
    training.went_on()
