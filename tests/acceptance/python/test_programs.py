"""Python programs that queue their folders as jobs: from another environment, on real processes."""

import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import torchq
from crds.api_resources import TORCHJOBS
from tests.support.acceptance.stack import Stack
from tests.support.client import page
from tests.support.client.programs import ROOT, install
from tests.support.waiting import until

PAGE = ROOT / "docs" / "python.md"
OUR_NAMES = ("kube", "embedded", "queues", "gang", "coordinator", "reconcilers", "crds")
PAGE_SECONDS = 240


class Project:
    """A folder of a user whose packages have the same names as packages of torchq, and an environment with only
    torchq.
    """

    def __init__(self, folder: Path, stack: Stack) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        for name in OUR_NAMES:
            (self.folder / name).mkdir()
            (self.folder / name / "__init__.py").write_text("raise ImportError('a package of a user')\n")
        packages = folder / "packages"
        shutil.copytree(ROOT / "torchq", packages / "torchq", ignore=shutil.ignore_patterns("__pycache__"))
        self.environment = {
            **stack.environment,
            "PATH": install(folder / "bin"),
            "PYTHONPATH": f"{self.folder}{os.pathsep}{packages}",
        }

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start Python without any package but torchq."""
        return subprocess.Popen(
            [sys.executable, "-S", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str, seconds: float = 90) -> str:
        """Run Python to its end, and return what it printed."""
        with self.start(*arguments) as process:
            try:
                said, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                raise AssertionError(process.communicate()[0]) from None
        assert process.returncode == 0, said
        return said


@pytest.fixture
def project(tmp_path: Path, stack: Stack) -> Project:
    return Project(tmp_path, stack)


def test_every_code_block_of_the_page_runs_as_written(project: Project, stack: Stack) -> None:
    languages = {block.language for block in page.blocks(PAGE.read_text())}
    assert languages == {"python", "toml", "sh", "text"}, "a block of another language is not run"
    said = project.run(page.__file__, str(PAGE), seconds=PAGE_SECONDS)
    assert "there is no TenantQueue nobody" in said
    assert said.count("'accuracy': 0.95") >= 3


def test_a_job_goes_on_when_its_program_is_killed(project: Project, stack: Stack, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    stack.torchq("queue", "create", "a")
    (project.folder / "train.py").write_text(
        f"import os, time\nwhile not os.path.exists({str(gate)!r}):\n    time.sleep(0.02)\n"
    )
    code = 'import torchq\njob = torchq.run(["python", "train.py"], queue="a")\nprint(job, flush=True)\njob.wait()\n'
    with project.start("-c", code) as process:
        assert process.stdout is not None
        handle = process.stdout.readline().strip()
        name = handle.split("/")[1]
        stack.reach(name, "Running")
        process.send_signal(signal.SIGKILL)
    gate.touch()
    stack.reach(name, "Succeeded")


def test_fifty_threads_run_and_wait(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All threads share one program. Each thread has its own job. Some jobs never get room and are cancelled."""
    stack.torchq("queue", "create", "a", "--quota", "jobs=4")
    (tmp_path / "train.py").write_text("import torchq\ntorchq.result(done=True)\n")
    monkeypatch.setenv("PATH", install(tmp_path / "bin"))
    monkeypatch.chdir(tmp_path)

    def use(number: int) -> tuple[int, str]:
        folder = tmp_path if number < 6 else tmp_path / "bin"
        command = ["python", "train.py"] if number < 6 else ["sleep", "3600"]
        job = client.run(command, queue="a", folder=folder, cpus=0.5)
        if number >= 6:
            job.cancel()
        assert job in client.jobs(queue="a")
        return number, job.wait(timeout=90).outcome

    with torchq.Client(kubeconfig=stack.layout.kubeconfig) as client, ThreadPoolExecutor(50) as pool:
        outcomes = dict(pool.map(use, range(50)))
    assert {outcomes[number] for number in range(6)} == {"Succeeded"}
    assert {outcomes[number] for number in range(6, 50)} == {"Cancelled"}


def test_waiting_jobs_tell_their_places_and_why(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", install(tmp_path / "bin"))
    stack.torchq("queue", "create", "a", "--hold")
    with torchq.Client(kubeconfig=stack.layout.kubeconfig) as client:
        jobs = [client.run(["true"], queue="a", folder=tmp_path / "bin") for _ in range(2)]
        until(lambda: [job.position() for job in jobs], lambda places: places == [1, 2])
        # The leader may see the jobs a moment before the queue that holds them.
        until(lambda: jobs[1].why()["code"], lambda code: code == "QueueHeld")
        assert client.next_picks(roomy=True) == []
        client.command("queue", "resume", "a")
        assert [ending.outcome for ending in client.wait(jobs, timeout=90)] == ["Succeeded"] * 2
        assert jobs[0].position() is None


def test_wrong_values_are_refused_in_the_servers_own_words(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", install(tmp_path / "bin"))
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("pass\n")
    monkeypatch.chdir(tmp_path / "code")
    stack.torchq("queue", "create", "a")
    said = {}
    with torchq.Client(kubeconfig=stack.layout.kubeconfig) as client:
        for name, wrong in {"nodes": 0, "gpus": -1, "queue": "nobody", "folder": "/nonexistent"}.items():
            with pytest.raises(torchq.Refused) as caught:
                client.run(["python", "train.py"], **{"queue": "a", name: wrong})  # type: ignore[arg-type]
            said[name] = str(caught.value)
    assert said["nodes"] == "nodes: must be 1 or more, not 0"
    assert said["gpus"] == "gpus: must be 0 or more, not -1"
    assert "there is no TenantQueue nobody: name another queue" in said["queue"]
    assert said["folder"].startswith("/nonexistent: ")
    assert stack.api.list(TORCHJOBS).items == [], "nothing was made"
