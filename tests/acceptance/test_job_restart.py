"""`torchq job restart` and `job show` on a whole cluster: a requested restart happens once and is shown."""

import os
import signal
from pathlib import Path

import pytest

from tests.support.acceptance.jobs import job, recording, spans
from tests.support.acceptance.stack import Stack, fresh, until


def uids(stack: Stack, name: str) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in stack.pods(name)}


def starts(records: Path) -> int:
    """Return the number of starts that all pods have recorded in the folder."""
    return sum(len(each.starts) for each in spans(records))


def running(stack: Stack, records: Path, tmp_path: Path) -> tuple[str, Path]:
    """Submit a job of two pods and wait until both run. Return its name and the file that ends them."""
    name, gate = fresh("restart"), tmp_path / "gate"
    stack.submit(job(name, recording(records, gate=gate), workers=1, policy="OnFailure"))
    stack.reach(name, "Running")
    until(lambda: starts(records), lambda found: found == 2)
    return name, gate


@pytest.mark.parametrize("how", ["--in-place", "--recreate"])
def test_a_whole_job_is_restarted_once(stack: Stack, records: Path, tmp_path: Path, how: str) -> None:
    name, gate = running(stack, records, tmp_path)
    before = uids(stack, name)
    assert "requested" in stack.torchq("job", "restart", name, how, "--reason", "it hangs")
    until(lambda: starts(records), lambda found: found == 4)
    stack.reach(name, "Running")
    after = uids(stack, name)
    assert before.keys() == after.keys()
    assert (before == after) is (how == "--in-place")
    shown = stack.torchq("job", "show", name)
    assert "RestartRequested" in shown
    assert "JobRestartRequested" in shown
    gate.touch()
    status = stack.reach(name, "Succeeded")["status"]
    assert status.get("restartCount", 0) == 0, "a requested restart is no failure"
    assert starts(records) == 4


@pytest.mark.smoke("restart")
def test_restarting_one_pod_leaves_the_others_running(stack: Stack, records: Path, tmp_path: Path) -> None:
    name, gate = running(stack, records, tmp_path)
    before = uids(stack, name)
    stack.torchq("job", "restart", name, "--task", "worker", "--index", "0", "--recreate")
    until(lambda: starts(records), lambda found: found >= 3)
    after = uids(stack, name)
    assert {each for each in before if before[each] == after.get(each)} == {f"{name}-master-0"}
    gate.touch()
    status = stack.reach(name, "Succeeded")["status"]
    assert (status.get("disruptions", 0), status.get("restartGeneration", 0)) == (0, 0)
    assert starts(records) == 3


def test_restarting_a_finished_job_is_refused(stack: Stack, records: Path) -> None:
    name = fresh("ended")
    stack.submit(job(name, recording(records)))
    stack.reach(name, "Succeeded")
    said = stack.try_run("job", "restart", name)
    assert said.code == 1
    assert "has finished: submit a new job" in said.err


def test_job_show_reports_a_failure_and_the_restart_count(stack: Stack, records: Path, tmp_path: Path) -> None:
    name, gate = running(stack, records, tmp_path)
    worker = next(each for each in spans(records) if "worker" in each.pod)
    os.kill(worker.pid, signal.SIGKILL)
    until(lambda: stack.job(name)["status"].get("restartCount", 0), lambda found: found == 1)
    stack.reach(name, "Running")
    shown = stack.torchq("job", "show", name)
    assert "1 of 6" in shown
    assert "Restarting" in shown
    gate.touch()
    stack.reach(name, "Succeeded")
