"""The search in the output of a failed command for the file that the command did not find in its working folder."""

import pytest

from embedded.node.pods import failed_output

CANT_OPEN = "python: can't open file '/data/pods/1/train.py': [Errno 2] No such file or directory\n"


@pytest.mark.parametrize(
    ("command", "output", "missing"),
    [
        (["python", "train.py"], CANT_OPEN, "train.py"),
        (["torchrun", "--nnodes=2", "train.py", "--lr", "0.1"], f"W1 torchrun\n{CANT_OPEN}E1 failed\n" * 2, "train.py"),
        (["python", "src/train.py"], "python: can't open file '/p/src/train.py': [Errno 2] No such", "src/train.py"),
        (["sh", "-c", "cd . && python train.py"], CANT_OPEN, "train.py"),
        (["bash", "run.sh"], "bash: run.sh: No such file or directory", "run.sh"),
        (["sh", "-c", "./run.sh 2>&1"], "sh: 1: ./run.sh: not found", "./run.sh"),
        (["./run.sh"], "./run.sh: No such file or directory", "./run.sh"),
        (["python", "-m", "project.train"], "python: No module named project", "project"),
        (["python", "-m", "train"], "/venv/bin/python: No module named train", "train"),
        (
            ["python", "/work/train.py"],
            "FileNotFoundError: [Errno 2] No such file or directory: 'conf/a.yaml'",
            "conf/a.yaml",
        ),
        (["python", "/work/train.py", "--config=a.yaml"], "a.yaml does not exist", "a.yaml"),
    ],
)
def test_first_returns_the_file_that_the_output_reports_as_missing(
    command: list[str], output: str, missing: str
) -> None:
    assert failed_output.first_missing(command, output, lambda _: False) == missing
    assert failed_output.first_missing(command, output, lambda _: True) == "", "the file exists"


@pytest.mark.parametrize(
    ("command", "output"),
    [
        (["python", "-c", "raise ValueError(1.5)"], "ValueError: 1.5"),
        (["python", "/work/train.py", "--out", "result.json"], "RuntimeError: shapes do not match"),
        (["python", "/work/train.py"], "FileNotFoundError: [Errno 2] No such file or directory: '/data/mnist'"),
        (["python", "/work/train.py"], "ModuleNotFoundError: No module named 'torchvision'"),
        (["python", "train.py"], "python: can't open file '/p/pretrain.py': [Errno 2] No such file or directory"),
        (["python", "$HOME/train.py"], "python: can't open file '/h/train.py': [Errno 2] No such file or directory"),
        (["wget", "https://example.org/a.txt"], "https://example.org/a.txt: 404 not found"),
        (["nvidia-smi"], "nvidia-smi: command not found"),
        ([], ""),
    ],
)
def test_first_returns_nothing_for_other_failures(command: list[str], output: str) -> None:
    assert failed_output.first_missing(command, output, lambda _: False) == ""
