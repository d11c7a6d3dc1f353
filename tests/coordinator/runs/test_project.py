"""The defaults of a project: they are read from pyproject.toml, and options of the user replace them."""

from pathlib import Path
from typing import Any

import pytest

from coordinator.runs import project
from coordinator.runs.errors import InvalidRun


def write(folder: Path, text: str) -> None:
    (folder / "pyproject.toml").write_text(text)


def test_a_folder_without_defaults_has_none(tmp_path: Path) -> None:
    assert project.read(tmp_path) == {}
    write(tmp_path, '[project]\nname = "a"\n[tool.ruff]\n')
    assert project.read(tmp_path) == {}


def test_what_is_given_comes_first_and_patterns_are_added(tmp_path: Path) -> None:
    write(
        tmp_path, '[tool.torchq]\nimage = "a"\nqueue = "q"\nnodes = 2\ngpus = 8\ngrace = "90s"\nexclude = ["data/"]\n'
    )
    merged = project.with_defaults({"image": "b", "queue": None, "exclude": ["*.pt"], "gpus": 0}, tmp_path)
    assert merged == {"image": "b", "queue": "q", "nodes": 2, "gpus": 0, "grace": "90s", "exclude": ["data/", "*.pt"]}


def test_numbers_of_pods_are_no_defaults_of_a_run_with_roles() -> None:
    defaults = {"image": "a", "nodes": 2, "gpus": 8}
    roles: dict[str, Any] = {"Master": {"command": ["a"]}}
    assert project.merge({"roles": roles}, defaults) == {"roles": roles, "image": "a"}


def test_a_range_of_nodes_is_a_default_and_autoscale_belongs_to_it(tmp_path: Path) -> None:
    write(tmp_path, '[tool.torchq]\nnodes = "1..3"\nautoscale = true\ncheckpoint_seconds = 60\n')
    assert project.with_defaults({}, tmp_path) == {"nodes": (1, 3), "autoscale": True, "checkpoint_seconds": 60}
    assert project.with_defaults({"nodes": "2"}, tmp_path) == {"nodes": "2", "checkpoint_seconds": 60}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[tool.torchq]\nimages = 'a'",
            "toml: tool.torchq.images: there is no such field; did you mean image?",
        ),
        ("[tool.torchq]\nnodes = 0", "tool.torchq.nodes: must be 1 or more"),
        ("[tool.torchq]\nimage = 1", "tool.torchq.image: must be a text"),
        ("[tool.torchq]\nexclude = 'a'", "tool.torchq.exclude: must be a list"),
        ("[tool.torchq]\ngrace = 90", "tool.torchq.grace: must be a text"),
        ("[tool.torchq]\ngrace = '90'", "tool.torchq.grace: must be a duration"),
        ("[tool]\ntorchq = 3", "tool.torchq: must be a map"),
        ("[tool", "pyproject.toml: not TOML: "),
    ],
)
def test_a_wrong_default_is_named_with_its_file(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path, text)
    with pytest.raises(InvalidRun, match=message):
        project.read(tmp_path)
