"""The parameters of calls: the values that are sent, and the values that are refused before anything is sent."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import torchq
from torchq._calls import CALLS
from torchq._parameters import as_params, check


def test_what_is_not_given_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = {
        "command": ("python", "train.py"),
        "nodes": np.int64(4),
        "cpus": np.float32(0.5),
        "queue": None,
        "folder": ".",
    }
    assert as_params(CALLS["run"], given) == {
        "command": ["python", "train.py"],
        "nodes": 4,
        "cpus": 0.5,
        "folder": str(tmp_path),
        "python_folder": str(Path(sys.executable).parent),
    }


def test_a_role_is_sent_with_what_it_has() -> None:
    role = torchq.Role(["python", "train.py"], nodes=3, after="Master", env={"A": "1"})
    sent = as_params(CALLS["run"], {"roles": {"Worker": role}, "folder": "/x"})["roles"]
    assert sent == {
        "Worker": {"command": ["python", "train.py"], "nodes": 3, "gpus": 0, "after": "Master", "env": {"A": "1"}}
    }


def test_jobs_are_sent_as_their_handles() -> None:
    job = torchq.Job("a/b/c", torchq.Client())
    assert as_params(CALLS["wait"], {"jobs": (each for each in (job, "d/e/f"))})["jobs"] == ["a/b/c", "d/e/f"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda client: client.run("python train.py"),
            r"command: must be a list of texts, as in .*, not .python train.py",
        ),
        (lambda client: client.run(["python", 3]), "command: must be a list of texts"),
        (
            lambda client: client.run(["x"], nodes="4"),
            "nodes: must be a whole number, or the least and the most, not '4'",
        ),
        (
            lambda client: client.run(["x"], nodes=True),
            "nodes: must be a whole number, or the least and the most, not True",
        ),
        (lambda client: client.run(["x"], env={"A": 1}), "env: must be a map of texts, not dict"),
        (lambda client: client.run(["x"], env={"A": object()}), r"env\.A: object cannot be sent"),
        (lambda client: client.wait("a/b/c"), "jobs: must be a list of jobs or handles"),
        (lambda client: client.queue(None), "name is missing"),
    ],
)
def test_a_wrong_value_is_refused_before_a_program_is_needed(
    call: Callable[[torchq.Client], Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(torchq.Invalid, match=words):
        call(torchq.Client())


def test_an_unknown_parameter_is_named() -> None:
    with pytest.raises(torchq.Invalid, match=r"queue has no parameter nam; it has name"):
        check(CALLS["queue"], {"nam": "a"})
