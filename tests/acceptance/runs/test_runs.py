"""`torchq run` on a whole cluster: the submitted code runs, whatever happens to its folder, and the command follows the
job.
"""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import torchq as torch_client
from crds.api_resources import CONFIG_MAPS, PODS, SECRETS
from tests.support.acceptance.stack import Stack, fresh, run, torchq_command, until
from tests.support.acceptance.warm import CommandResult
from tests.support.client.programs import install
from tests.support.waiting import patient

PROGRAM = """
import os, pathlib, sys, time
import lib.helper
pod = os.environ["TORCHQ_POD"]
records, gate = map(pathlib.Path, sys.argv[1:])
text = " ".join([lib.helper.TEXT, pathlib.Path("conf.txt").read_text().strip(), os.environ["SECRET_WORD"]])
print(text, flush=True)
name = f"{pod}-{time.time_ns()}"
(records / name).write_text(text)
while not gate.exists() or (os.environ["RANK"] == "0" and len(list(records.iterdir())) < 4):
    time.sleep(0.02)
"""
WORLD = """
import os, pathlib, sys, time
print("world-" + os.environ["WORLD_SIZE"], flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.02)
"""
HAS_TORCH = importlib.util.find_spec("torch") is not None


def torchq(stack: Stack, folder: Path, *arguments: str, python: Path | None = None) -> CommandResult:
    """Run a command in a project's folder, with the environment of `python` active."""
    active = {"VIRTUAL_ENV": str(python)} if python is not None else {}
    said = run(*arguments, cwd=folder, environment={**stack.environment, **active})
    assert "Traceback" not in said.err, said
    return said


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "lib").mkdir(parents=True)
    (folder / "train.py").write_text(PROGRAM)
    (folder / "lib" / "helper.py").write_text("TEXT = 'submitted'")
    (folder / "conf.txt").write_text("with this file")
    (folder / ".env").write_text("TOKEN=1")
    return folder


def test_the_code_of_a_waiting_job_and_of_its_restart_is_what_was_submitted(
    stack: Stack, project: Path, records: Path, tmp_path: Path
) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "words"},
        "stringData": {"key": "and a secret"},
    }
    stack.api.create(SECRETS, secret, "default")
    queue, name, gate = fresh("queue"), fresh("run"), tmp_path / "gate"
    stack.torchq("queue", "create", queue)
    stack.torchq("queue", "pause", queue)
    options = ("--name", name, "--queue", queue, "--nodes", "2", "--cpus", "1", "--secret-env", "SECRET_WORD=words/key")
    command = ("--", "python", "train.py", str(records), str(gate))
    said = torchq(stack, project, "run", "-d", *options, *command)
    assert said.code == 0, said
    assert said.out.startswith(f"default/{name}/")
    assert "code: 3 files, " in said.err
    assert "(left out: .env looks like a secret)" in said.err
    (project / "lib" / "helper.py").write_text("TEXT = 'edited'")
    (project / "conf.txt").unlink()
    shutil.rmtree(project)
    stack.torchq("queue", "resume", queue)
    stack.reach(name, "Running")
    until(lambda: len(list(records.iterdir())), lambda count: count == 2)
    stack.torchq("job", "restart", name, "--recreate")
    until(lambda: len(list(records.iterdir())), lambda count: count == 4)
    gate.touch()
    stack.reach(name, "Succeeded")
    assert {path.read_text() for path in records.iterdir()} == {"submitted with this file and a secret"}
    said = stack.try_run("job", "logs", name)
    assert said.out == "submitted with this file and a secret\n" * 2
    assert [line.partition(",")[0] for line in said.err.splitlines()] == ["master-0: run 1", "master-0: run 2"]
    stack.torchq("job", "delete", name)
    until(lambda: stack.api.list(CONFIG_MAPS, "default").items, lambda items: not items)
    stack.api.delete(SECRETS, "words", "default")


@pytest.mark.smoke("run")
def test_a_run_is_followed_to_its_end_and_its_printed_objects_give_the_same_run(
    stack: Stack, project: Path, tmp_path: Path
) -> None:
    (project / "train.py").write_text("import sys, lib.helper\nprint(lib.helper.TEXT, sys.executable, '$(x)')")
    environment = tmp_path / "venv"
    venv.create(environment, symlinks=True)
    printed = torchq(stack, project, "run", "--dry-run", "-o", "yaml", "--", "python", "train.py", python=environment)
    said = torchq(stack, project, "run", "--", "python", "train.py", python=environment)
    assert said.code == 0, said
    handle, *lines = said.out.splitlines()
    assert handle.startswith("default/train-")
    assert lines == [f"[master-0] submitted {environment}/bin/python $(x)"]
    assert "\nSucceeded in " in said.err
    again = stack.torchq("submit", "-", text=printed.out).strip()
    stack.reach(again.split("/")[1], "Succeeded")
    assert stack.torchq("job", "logs", again) == lines[0].removeprefix("[master-0] ") + "\n"


def test_a_run_that_fails_says_why_and_a_result_is_shown(stack: Stack, project: Path) -> None:
    failed = torchq(stack, project, "run", "--", "python", "-c", "raise ValueError('the loss is NaN')")
    assert failed.code == 1
    assert "[master-0] ValueError: the loss is NaN\n" in failed.out
    assert failed.err.splitlines()[-1].startswith("Failed in ")
    assert "the loss is NaN" in failed.err.splitlines()[-1]
    missing = torchq(stack, project, "run", "--", "pyhton", "train.py")
    assert missing.code == 1
    assert "cannot execute 'pyhton'" in missing.err
    result = """import os; open(os.environ["TORCHQ_RESULT_FILE"], "w").write('{"torchq-result":{"accuracy":0.5}}')"""
    succeeded = torchq(stack, project, "run", "--", "python", "-c", result)
    assert succeeded.code == 0, succeeded
    last = succeeded.err.splitlines()[-1]
    assert json.loads(last.partition("; result ")[2]) == {"accuracy": 0.5}


def test_files_beside_the_code_are_named_at_the_first_restart_and_at_the_end_and_can_be_had(
    stack: Stack, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "runs"
    (project / "train.py").write_text(f"""
import os, pathlib
with open({str(runs)!r}, "a") as file: file.write("x")
number = os.path.getsize({str(runs)!r})
pathlib.Path("checkpoints").mkdir()
pathlib.Path("checkpoints/last.pt").write_text(str(number) * 4096)
if number < 2: os.kill(os.getpid(), 9)
""")
    said = torchq(stack, project, "run", "--name", "files", "--", "python", "train.py")
    files = "1 new file, 4.0 KiB: checkpoints/last.pt; torchq.output() keeps them"
    told = [each for each in said.err.splitlines() if files in each or each.startswith(("restart", "Succeeded"))]
    assert [each.split()[0] for each in told] == ["restart", "go", "stay", "Succeeded"]
    [pod] = stack.pods("files")
    stack.api.delete(PODS, "files-master-0", "default")
    until(lambda: not stack.layout.pod(pod["metadata"]["uid"]).exists())
    monkeypatch.setenv("PATH", install(tmp_path / "bin"))
    with torch_client.Client(kubeconfig=stack.layout.kubeconfig) as client:
        assert client.job("default/files").download(to=tmp_path / "got") == ["checkpoints/last.pt"]
    assert (tmp_path / "got" / "checkpoints" / "last.pt").read_text() == "2" * 4096


@pytest.mark.usefixtures("own_signals")
def test_ctrl_c_lets_go_of_a_run_which_goes_on(stack: Stack, project: Path, tmp_path: Path) -> None:
    name, gate = fresh("run"), tmp_path / "gate"
    waits = f"import os, time\nprint('began', flush=True)\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.02)"
    process = subprocess.Popen(
        torchq_command("run", "--name", name, "--", "python", "-c", waits),
        cwd=project,
        env={**stack.environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith(f"default/{name}/")
    assert process.stdout.readline() == "[master-0] began\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=patient(30))
    assert process.returncode == 130
    assert "Traceback" not in err
    stack.reach(name, "Running")
    gate.touch()
    stack.reach(name, "Succeeded")


@pytest.mark.parametrize(
    "command", ["python", pytest.param("torchrun", marks=pytest.mark.skipif(not HAS_TORCH, reason="torch is missing"))]
)
def test_a_range_of_nodes_changes_its_size_while_it_runs(
    stack: Stack, project: Path, tmp_path: Path, command: str
) -> None:
    name, gate = fresh("run"), tmp_path / "gate"
    (project / "train.py").write_text(WORLD)
    options = ("--name", name, "--nodes", "1..3", "--cpus", "0.1", "--checkpoint-seconds", "1")
    assert torchq(stack, project, "run", "-d", *options, "--", command, "train.py", str(gate)).code == 0
    worlds = lambda: set(stack.try_run("job", "logs", "--all", name).out.split())  # noqa: E731
    until(worlds, lambda seen: "world-3" in seen)
    stack.torchq("job", "scale", name, "2")
    until(worlds, lambda seen: "world-2" in seen)
    gate.touch()
    stack.reach(name, "Succeeded")


def test_a_run_in_place_sees_its_folder(stack: Stack, project: Path) -> None:
    said = torchq(stack, project, "run", "--in-place", "--", "python", "-c", "import os; print(os.getcwd())")
    assert said.code == 0, said
    assert f"[master-0] {project}\n" in said.out
    assert "code: " not in said.err


def test_a_run_succeeds_when_its_last_rank_has_ended_and_fails_with_it(
    stack: Stack, project: Path, tmp_path: Path
) -> None:
    gate, written = tmp_path / "gate", tmp_path / "written"
    (project / "train.py").write_text(f"""
import os, pathlib, sys, time
if os.environ["RANK"] == "1":
    while not os.path.exists({str(gate)!r}): time.sleep(0.02)
    if sys.argv[1:]: raise ValueError("the last batch is empty")
    pathlib.Path({str(written)!r}).write_text("done")
""")
    name = fresh("run")
    begun = torchq(stack, project, "run", "-d", "--name", name, "--nodes", "2", "--", "python", "train.py")
    assert begun.code == 0, begun
    stack.reach(name, "Running")
    waits = f"the job waits for rank 1 (pod {name}-worker-0), as others have ended with 0 since "
    until(lambda: waits in stack.torchq("job", "why", name))
    assert waits in stack.torchq("job", "show", name)
    assert "WaitsForRanks: the job waits for rank 1" in stack.torchq("job", "list")
    gate.touch()
    stack.reach(name, "Succeeded")
    assert written.read_text() == "done"
    failed = torchq(stack, project, "run", "--nodes", "2", "--", "python", "train.py", "raises")
    assert failed.code == 1
    assert failed.err.splitlines()[-1].startswith("Failed in ")
    assert "ValueError: the last batch is empty" in failed.err.splitlines()[-1]
    assert "restart" not in failed.err, "an exception of the code is raised again"
