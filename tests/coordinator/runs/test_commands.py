"""Commands that cannot run: each message has the command that was meant. No command that may run is refused."""

from pathlib import Path

import pytest

from coordinator.runs import commands, obstacles
from crds import labels
from tests.support.coordinator.desk import manifest

FILES = {
    "t.py": b"print(1)\n",
    "run.sh": b"#!/bin/sh\ntrue\n",
    "tool": b"#!/bin/sh\ntrue\n",
    "my script.sh": b"#!/bin/sh\ntrue\n",
    "good.py": b"#!/usr/bin/env python3\nprint(1)\n",
    "bare.sh": b"true\n",
    "dos.sh": b"#!/bin/sh\r\ntrue\r\n",
    "dos.py": b"#!/usr/bin/env python3\r\nprint(1)\r\n",
    "lost.sh": b"#!/opt/nowhere/bash\ntrue\n",
    "program": b"\x7fELF\0\0",
    "sub/x.sh": b"true\n",
}
PLAIN = ("t.py", "run.sh")
"""The files without the run bit."""
ANYWHERE = [
    (["python t.py"], "python t.py"),
    (["python t.py --lr 1"], "python t.py --lr 1"),
    (["python t.py", "--name", "a b"], "python t.py --name 'a b'"),
    (["cd sub && python x.py"], "bash -c 'cd sub && python x.py'"),
    (["python t.py > log"], "bash -c 'python t.py > log'"),
    (["SEED=1 python t.py"], "env SEED=1 python t.py"),
    (["SEED=1", "python", "t.py"], "env SEED=1 python t.py"),
    (["cd", "sub"], "bash -c 'cd sub && ...'"),
    (["source", "venv/bin/activate"], "bash -c 'source venv/bin/activate && ...'"),
    (["cd", "sub", "&&", "python", "a b.py"], "bash -c 'cd sub && python '\"'\"'a b.py'\"'\"''"),
    (["python", "t.py", "&&", "echo", "done"], "bash -c 'python t.py && echo done'"),
]
IN_FOLDER = [
    (["t.py"], "python t.py"),
    (["run.sh", "-x"], "bash run.sh -x"),
    (["./t.py"], "python ./t.py"),
    (["./run.sh"], "bash ./run.sh"),
    (["sub/x.sh"], "bash sub/x.sh"),
    (["./bare.sh"], "bash ./bare.sh"),
    (["./dos.sh"], "sed -i 's/\\r$//' ./dos.sh)"),
    (["./dos.py"], "sed -i 's/\\r$//' ./dos.py)"),
    (["bash", "dos.sh"], "sed -i 's/\\r$//' dos.sh)"),
    (["sh", "-e", "dos.sh", "1"], "sed -i 's/\\r$//' dos.sh)"),
    (["env", "A=1", "t.py"], "python t.py"),
]
HERE = [(["tool"], "./tool"), (["./lost.sh"], "bash ./lost.sh")]
SOUND = [
    ["python", "t.py"],
    ["./good.py"],
    ["./tool", "a b"],
    ["./my script.sh"],
    ["./program"],
    ["bash", "run.sh"],
    ["bash", "-c", "cd sub && python x.py"],
    ["python", "dos.py"],
    ["env", "A=1", "python", "t.py"],
    ["torchrun", "t.py", "--note", "a && b"],
    ["find", ".", "-exec", "true", ";"],
    ["nobody-knows"],
    ["python", "t.py", "&&"],
    ["sh", "-c", "echo $0", "&&"],
    ["$(PYTHON) x", "t.py"],
    ["sh", "missing.sh"],
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o644 if name in PLAIN or name == "sub/x.sh" else 0o755)
    return tmp_path


@pytest.mark.parametrize(("command", "meant"), [*ANYWHERE, *IN_FOLDER, *HERE])
@pytest.mark.parametrize("here", [True, False])
def test_a_command_that_cannot_run_is_told_with_the_one_that_was_meant(
    folder: Path, command: list[str], meant: str, here: bool
) -> None:
    told = commands.problem(command, commands.read(command, folder, here=here))
    is_certain = here or (command, meant) not in HERE
    assert told.endswith(meant) if is_certain else told == ""
    assert ((command, meant) in ANYWHERE) == bool(commands.problem(command))


@pytest.mark.parametrize("command", SOUND)
@pytest.mark.parametrize("here", [True, False])
def test_a_command_that_may_run_is_not_refused(folder: Path, command: list[str], here: bool) -> None:
    assert commands.problem(command, commands.read(command, folder, here=here)) == ""


@pytest.mark.parametrize(("embedded", "count"), [(True, 2), (False, 1)])
def test_the_folder_of_submission_counts_on_one_machine_alone(folder: Path, embedded: bool, count: int) -> None:
    containers = [
        {"name": "torch", "image": "x", "command": ["python t.py"]},
        {"name": "beside", "image": "x", "command": ["t.py"]},
        {"name": "none", "image": "x"},
        {"name": "elsewhere", "image": "x", "command": ["t.py"], "workingDir": "/"},
    ]
    body = manifest("train", "", {"Master": {"template": {"spec": {"containers": containers}}}})
    body["metadata"]["annotations"] = {labels.SUBMIT_DIRECTORY: str(folder)}
    found = list(obstacles.of_commands(body, embedded=embedded))
    assert [each.field.partition(".template.")[2] for each in found] == [
        f"spec.containers[{index}].command" for index in range(count)
    ]
    assert all(each.firm for each in found)


@pytest.mark.parametrize(
    ("command", "workers", "noted"),
    [
        (["torchrun", "--standalone", "t.py"], 1, True),
        (["python", "-m", "torch.distributed.run", "--standalone", "t.py"], 1, True),
        (["bash", "-c", "torchrun --standalone t.py"], 1, True),
        (["torchrun", "--standalone", "t.py"], 0, False),
        (["torchrun", "t.py"], 1, False),
        (["python", "t.py", "--standalone"], 1, False),
    ],
)
def test_torchrun_for_one_node_alone_is_noted_for_a_job_of_several(
    command: list[str], workers: int, noted: bool
) -> None:
    task = {"template": {"spec": {"containers": [{"name": "torch", "image": "x", "command": command}]}}}
    tasks = {"Master": task} | ({"Worker": {**task, "numTasks": workers}} if workers else {})
    found = list(obstacles.of_commands(manifest("train", "", tasks), embedded=False))
    assert [(each.code, each.firm) for each in found] == ([("Standalone", False)] if noted else [])
