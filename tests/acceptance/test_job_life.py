"""The life of a job as its user sees it: submission, suspension, cancellation, failure and logs."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from kube.api import Manifest
from tests.reconcilers.views.test_tracebacks import BEGIN, LOGS, LOST, SHAPES, failure, ranks, report
from tests.support.acceptance.jobs import job, python, recording, spans
from tests.support.acceptance.stack import EVERYWHERE, Stack, alive, fresh, torchq_command, until
from tests.support.waiting import patient

BIG = "3"
"""The CPUs of a job of which two cannot run at once."""


def condition(found: Manifest, kind: str) -> Manifest:
    """Return a condition of a job."""
    return next(each for each in found["status"]["conditions"] if each["type"] == kind)


@pytest.mark.smoke("submit")
def test_a_submitted_job_has_a_handle_and_succeeds(stack: Stack) -> None:
    name = fresh()
    (stack.folder / "job.json").write_text(json.dumps(job(name, python("print('hello')"), workers=1)))
    handle = stack.torchq("submit", "job.json").strip()
    found = stack.reach(name, "Succeeded")
    assert handle == f"default/{name}/{found['metadata']['uid']}"
    assert condition(found, "Succeeded")["status"] == "True"
    # The pods may end before a worker reads their state. Then the condition Running is missing.
    assert "True" not in [each["status"] for each in found["status"]["conditions"] if each["type"] == "Running"]
    assert found["status"]["taskStatuses"]["Master"]["succeeded"] == 1
    shown = stack.output_json("job", "show", handle)
    assert shown.pop("details")
    assert shown == found
    assert stack.torchq("job", "logs", handle) == "hello\n"
    assert [each["metadata"]["name"] for each in stack.output_json("job", "list")["items"]] == [name]
    line = stack.torchq("job", "list", "--no-headers").split()
    assert line[:4] == ["default", name, "default", "Succeeded"]
    until(stack.is_settled)


@EVERYWHERE
def test_every_pod_has_its_rank_and_master_in_its_environment(stack: Stack, tmp_path: Path) -> None:
    name = fresh()
    script = """
        import json, os, sys, time
        folder = sys.argv[1]
        with open(folder + "/writing-" + os.environ["POD"], "w") as file:
            json.dump(dict(os.environ) | {"cwd": os.getcwd()}, file)
        os.rename(file.name, folder + "/" + os.environ["POD"])
        # The job succeeds with its master, which stops its other pods. So the master ends last.
        while os.environ["RANK"] == "0" and sum(not name.startswith("writing-") for name in os.listdir(folder)) < 3:
            time.sleep(0.02)
    """
    stack.submit(job(name, python(script, tmp_path), workers=2))
    stack.reach(name, "Succeeded")
    port = str(stack.admission(name)["port"])
    for rank, pod in enumerate(["master-0", "worker-0", "worker-1"]):
        file = tmp_path / f"{name}-{pod}"
        found = json.loads(file.read_text())
        wanted = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "RANK": str(rank),
            "WORLD_SIZE": "3",
            "PET_NNODES": "3",
            "NODE_RANK": str(rank),
            "PET_NODE_RANK": str(rank),
            "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "25",
            "PET_NPROC_PER_NODE": "1",
            "PET_MASTER_ADDR": "127.0.0.1",
            "PET_MASTER_PORT": port,
            "PYTHONUNBUFFERED": "1",
            "cwd": str(stack.folder),
        }
        assert {each: found.get(each) for each in wanted} == wanted
        assert {each for each in found if each.startswith("KUBE")} == {
            "KUBEFLOW_TRAINER_SERVER_URL",
            "KUBEFLOW_TRAINER_SERVER_TOKEN",
        }


def test_variables_of_the_user_override_those_of_torchq(stack: Stack) -> None:
    name = fresh()
    body = job(
        name, python("import os; print(*(os.environ[each] for each in ('WORLD_SIZE', 'PYTHONUNBUFFERED', 'MINE')))")
    )
    container = body["spec"]["torchTaskSpecs"]["Master"]["template"]["spec"]["containers"][0]
    container["env"] += [
        {"name": "WORLD_SIZE", "value": "77"},
        {"name": "PYTHONUNBUFFERED", "value": "yes"},
        {"name": "MINE", "value": "rank $(RANK)"},
    ]
    stack.submit(body)
    stack.reach(name, "Succeeded")
    assert stack.torchq("job", "logs", name) == "77 yes rank 0\n"


@EVERYWHERE
def test_a_suspended_job_frees_its_resources_and_keeps_its_position(
    stack: Stack, records: Path, tmp_path: Path
) -> None:
    first, second, third = (fresh() for _ in range(3))
    gates = {name: tmp_path / f"{name}.gate" for name in (first, second, third)}
    for name, gate in gates.items():
        stack.submit(job(name, recording(records, gate=gate), cpu=BIG))
    stack.reach(first, "Running")
    until(lambda: len(spans(records)) == 1)
    pid = spans(records)[0].pid

    stack.torchq("job", "suspend", first)
    suspended = stack.reach(first, "Suspended")
    assert condition(suspended, "Suspended")["status"] == "True"
    assert "admission" not in suspended["status"]
    assert not stack.pods(first)
    assert not alive(pid)
    stack.reach(second, "Running")

    stack.torchq("job", "resume", first)
    stack.reach(first, "Queued")
    stack.reach(third, "Queued")
    gates[second].touch()
    stack.reach(second, "Succeeded")
    stack.reach(first, "Running")  # older than the third job, which was never suspended
    assert stack.phase(third) == "Queued"
    gates[first].touch()
    gates[third].touch()
    stack.reach(third, "Succeeded")
    assert stack.reach(first, "Succeeded")["status"]["attempt"] == 2
    runs = {(span.job, span.attempt): len(span.starts) for span in spans(records)}
    assert runs == {(first, 1): 1, (first, 2): 1, (second, 1): 1, (third, 1): 1}


@EVERYWHERE
def test_a_waiting_job_can_be_suspended_and_resumed(stack: Stack) -> None:
    queue, held, free = fresh("queue"), fresh(), fresh()
    stack.torchq("queue", "create", queue, "--hold")
    stack.submit(job(held, python("pass"), queue=queue), job(free, python("pass"), queue=queue))
    stack.reach(held, "Queued")
    stack.torchq("job", "suspend", held)
    stack.reach(held, "Suspended")
    stack.torchq("queue", "resume", queue)
    stack.reach(free, "Succeeded")
    assert stack.phase(held) == "Suspended"
    stack.torchq("job", "resume", held)
    assert stack.reach(held, "Succeeded")["status"]["attempt"] == 1


@EVERYWHERE
@pytest.mark.smoke("cancel")
def test_cancelling_a_running_job_admits_the_next_one(stack: Stack, records: Path, tmp_path: Path) -> None:
    first, second = fresh(), fresh()
    stack.submit(job(first, recording(records, gate=tmp_path / "never"), cpu=BIG))
    stack.submit(job(second, python("pass"), cpu=BIG))
    stack.reach(first, "Running")
    stack.reach(second, "Queued")
    until(lambda: spans(records))
    stack.torchq("job", "cancel", first)
    stack.reach(second, "Succeeded")
    said = stack.try_run("job", "wait", first, second)
    assert (said.code, sorted(line.split()[1].rstrip(":") for line in said.out.splitlines())) == (
        1,
        ["Cancelled", "Succeeded"],
    )
    assert not stack.pods(first)
    assert not alive(spans(records)[0].pid)


@EVERYWHERE
def test_cancelling_a_waiting_job_removes_it_from_the_queue(stack: Stack) -> None:
    queue, name = fresh("queue"), fresh()
    stack.torchq("queue", "create", queue, "--hold")
    [handle] = stack.submit(job(name, python("pass"), queue=queue))
    until(stack.waiting, lambda found: handle in found)
    stack.torchq("job", "cancel", handle)
    until(stack.waiting, lambda found: handle not in found)
    assert condition(stack.reach(name, "Failed"), "Failed")["reason"] == "Cancelled"
    stack.torchq("job", "delete", handle)
    assert not stack.exists(name)
    stack.torchq("queue", "delete", queue)


@EVERYWHERE
def test_a_failed_job_has_the_reason_and_the_exit_code(stack: Stack) -> None:
    name = fresh()
    stack.submit(job(name, python("import sys; sys.exit('no data there')")))
    failed = condition(stack.reach(name, "Failed"), "Failed")
    assert failed["status"] == "True"
    assert failed["reason"] == "PodFailed"
    assert "exit code 1" in failed["message"]
    assert "no data there" in failed["message"]
    assert "PodFailed" in stack.torchq("job", "show", name)
    until(stack.is_settled)


COUNTING = """
    import os, sys
    with open(sys.argv[1], "a") as file:
        file.write("run\\n")
    sys.exit(len(open(sys.argv[1]).readlines()) <= int(sys.argv[2]))
"""
"""A program that fails the given number of times and then succeeds."""


@EVERYWHERE
def test_a_job_is_restarted_until_it_succeeds(stack: Stack, tmp_path: Path) -> None:
    name = fresh()
    stack.submit(job(name, python(COUNTING, tmp_path / "runs", 2), policy="OnFailure"))
    status = stack.reach(name, "Succeeded")["status"]
    assert status["restartCount"] == 2
    assert status["attempt"] == 1  # restarted within its admission
    assert len((tmp_path / "runs").read_text().splitlines()) == 3


def test_a_job_fails_when_it_reaches_its_restart_limit(stack: Stack, tmp_path: Path) -> None:
    name = fresh()
    stack.submit(job(name, python(COUNTING, tmp_path / "runs", 9), policy="OnFailure", backoffLimit=1))
    failed = stack.reach(name, "Failed")
    assert condition(failed, "Failed")["reason"] == "BackoffLimitExceeded"
    assert len((tmp_path / "runs").read_text().splitlines()) == 2


def test_following_logs_of_a_waiting_job_returns_all_its_output(stack: Stack, tmp_path: Path) -> None:
    queue, name, gate = fresh("queue"), fresh(), tmp_path / "gate"
    stack.torchq("queue", "create", queue, "--hold")
    script = """
        import os, sys, time
        print("begun")
        while not os.path.exists(sys.argv[1]): time.sleep(0.02)
        print("done", file=sys.stderr)
    """
    stack.submit(job(name, python(script, gate), queue=queue))
    stack.reach(name, "Queued")
    command = torchq_command("job", "logs", "-f", name)
    out = (tmp_path / "out").open("w+")
    with (
        out,
        subprocess.Popen(command, env=stack.environment, stdout=out, stderr=subprocess.PIPE, text=True) as follower,
    ):
        try:
            assert follower.stderr is not None
            assert follower.stderr.readline().startswith("waiting: ")
            stack.torchq("queue", "resume", queue)
            until((tmp_path / "out").read_text, lambda text: text == "begun\n")  # the log is printed while the job runs
            gate.touch()
            assert follower.wait(patient()) == 0
        finally:
            follower.kill()
    assert (tmp_path / "out").read_text() == "begun\ndone\n"
    assert stack.torchq("job", "logs", "-f", name) == "begun\ndone\n"
    said = stack.try_run("job", "logs", name, "--task", "worker")
    assert (said.code, "Master 0..0" in said.err.replace("master", "Master")) == (2, True)


@EVERYWHERE
def test_a_job_succeeds_after_its_submitting_client_is_killed(stack: Stack) -> None:
    name = fresh()
    with subprocess.Popen(
        torchq_command("submit", "-"),
        env=stack.environment,
        cwd=stack.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as submitter:
        assert submitter.stdin is not None
        assert submitter.stdout is not None
        submitter.stdin.write(json.dumps(job(name, python("pass"), workers=1)).encode())
        submitter.stdin.close()
        assert submitter.stdout.readline().startswith(f"default/{name}/".encode())
        os.kill(submitter.pid, signal.SIGKILL)
    stack.reach(name, "Succeeded")


def test_the_message_of_a_failed_job_is_the_exception_of_the_first_failed_rank(stack: Stack, tmp_path: Path) -> None:
    """Each pod prints a torchrun report longer than a termination message. The master loses its connection to a worker
    and ends first.
    """
    lost = ranks(0, f"{BEGIN}{LOST}") + report(0, others=failure(1, -15, 1) * 20)
    outputs = {"master": lost, "worker": (LOGS / "after.txt").read_text()}
    for task, text in outputs.items():
        (tmp_path / task).write_text(text)
    script = """
        import os, sys, time
        task = os.environ["POD"].split("-")[-2]
        while len([name for name in os.listdir(sys.argv[1]) if name.startswith("up-")]) < 2:
            open(f"{sys.argv[1]}/up-{task}", "w").close()
        while task == "worker" and not os.path.exists(sys.argv[1] + "/over"):
            time.sleep(0.02)
        sys.stderr.write(open(f"{sys.argv[1]}/{task}").read())
        open(sys.argv[1] + "/over", "w").close()
        sys.exit(1)
    """
    name = fresh("ranks")
    stack.submit(job(name, python(script, tmp_path), workers=1))
    status = stack.reach(name, "Failed")["status"]
    (said,) = [each["message"] for each in status["conditions"] if each["type"] == "Failed"]
    assert said == f"pod {name}-worker-0 failed with exit code 1 (Error): {SHAPES}"
    assert said in stack.torchq("job", "why", name)
