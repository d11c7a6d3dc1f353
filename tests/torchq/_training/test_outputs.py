"""The folder of a job's outputs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from torchq._errors import Refused, TorchqError
from torchq._training.outputs import output


@pytest.fixture(autouse=True)
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    for name in ("TORCHQ_OUTPUT", "TORCHQ_RESULT_FILE", "TORCHQ_JOB"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    def enter(**variables: str) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return enter


def test_a_job_gets_the_folder_that_is_named_for_it(outside: Callable[..., None], tmp_path: Path) -> None:
    outside(TORCHQ_OUTPUT=str(tmp_path / "team" / "train-u1"), TORCHQ_RESULT_FILE="/dev/termination-log")
    assert output() == output() == tmp_path / "team" / "train-u1"
    assert output().is_dir()


@pytest.mark.parametrize("variables", [{"TORCHQ_RESULT_FILE": "/dev/termination-log"}, {"TORCHQ_JOB": "team/train"}])
def test_a_job_without_outputs_says_how_to_get_them(outside: Callable[..., None], variables: dict[str, str]) -> None:
    outside(**variables)
    with pytest.raises(Refused, match=r"name a claim with torchq\.run\(\.\.\., outputs=CLAIM\)"):
        output()


def test_outside_a_job_it_is_a_folder_here_that_no_job_takes_along(tmp_path: Path) -> None:
    assert output() == output() == tmp_path / "outputs"
    assert (tmp_path / "outputs" / ".gitignore").read_text() == "*\n"


def test_a_folder_of_the_user_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "outputs").mkdir()
    assert output() == tmp_path / "outputs"
    assert list((tmp_path / "outputs").iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(outside: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    outside(TORCHQ_OUTPUT=str(tmp_path / "file" / "below"))
    with pytest.raises(TorchqError, match=r"the folder for outputs .*below cannot be made: Not a directory"):
        output()
