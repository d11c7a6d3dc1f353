"""The names of jobs: they are made from a script, a module or a folder."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.runs import job_names
from crds.torchjob.torchjob import DNS_1035


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["python", "train.py", "--lr", "1"], "train"),
        (["torchrun", "--nproc-per-node", "2", "src/My_Train.py", "other.py"], "my-train"),
        (["python", "-m", "project.train"], "train"),
        (["python", "-m", "torch.distributed.run", "a/b.py"], "b"),
        (["python", "-m", "torchq._runner", "project.tasks", "Trainer.train_all"], "train-all"),
        (["python", "-m", "torchq._runner"], "my-project"),
        (["sh", "-c", "echo"], "my-project"),
        (["python", "123.py"], "run-123"),
        (["python", "ü.py"], "my-project"),
    ],
)
def test_a_name_comes_from_what_the_command_runs(command: Sequence[str], expected: str) -> None:
    assert job_names.base(command, "/home/me/my_project/") == expected


def test_a_job_of_a_folder_without_a_usable_name_is_called_run() -> None:
    assert job_names.base(["sh"], "/") == "run"
    assert job_names.base(["sh"], "/ü") == "run"


@given(st.lists(st.text(), min_size=1, max_size=3), st.text())
def test_every_generated_name_is_a_name_of_a_job(command: list[str], folder: str) -> None:
    name = job_names.generated([*command, "x" * 60 + ".py"], folder, max)
    assert re.fullmatch(DNS_1035, name)
    assert len(name) <= job_names.LONGEST
    assert re.fullmatch(DNS_1035, job_names.stand_in(name, min))
