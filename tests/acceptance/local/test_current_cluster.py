"""`torchq local up` next to a kubeconfig of another cluster: commands use the current cluster and print its name."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.acceptance.jobs import job, python
from tests.support.acceptance.stack import CommandResult, Stack, clean_environment, fresh, run, until

Make = Callable[..., Stack]
PROD = "http://127.0.0.1:9"
"""The URL of the other cluster: the discard port, where no server listens. Commands that use it fail with this URL."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Create a home folder with the kubeconfig of another cluster."""
    file = tmp_path / ".kube" / "config"
    file.parent.mkdir()
    other = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "prod",
        "clusters": [{"name": "prod", "cluster": {"server": PROD}}],
        "users": [{"name": "prod", "user": {}}],
        "contexts": [{"name": "prod", "context": {"cluster": "prod", "user": "prod"}}],
    }
    file.write_text(json.dumps(other))
    return tmp_path


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return the environment of a user with this home folder and without variables that name a cluster."""
    found = clean_environment(HOME=str(home), **more)
    return {name: value for name, value in found.items() if not name.startswith("XDG_")}


def torchq(home: Path, *arguments: str, text: str | None = None, **more: str) -> CommandResult:
    said = run(*arguments, cwd=home, environment=environment(home, **more), text=text)
    assert "Traceback" not in said.err + said.out, said
    return said


def test_local_up_makes_its_cluster_current_until_local_down(make_stack: Make, home: Path) -> None:
    stack, name = make_stack(), fresh()
    kubeconfig = (home / ".kube" / "config").read_bytes()
    local = ("--data", str(stack.data))
    up = torchq(home, "local", "up", *local, *stack.options)
    try:
        assert up.code == 0, up
        word = f"local:{stack.data}"
        assert f"torchq's commands now go to it ({word}); for prod of ~/.kube/config: torchq --context prod" in up.out
        assert torchq(home, "queue", "create", "team-a").out == f"queue team-a created on {word}\n"
        submitted = torchq(home, "submit", "-", text=json.dumps(job(name, python("pass"))))
        assert (len(submitted.out.split()), submitted.err) == (1, f"1 submitted on {word}\n")
        assert torchq(home, "job", "delete", name).out == f"job default/{name} deleted on {word}\n"
        assert json.loads(torchq(home, "status", "-o", "json").out)["cluster"] == word
        assert PROD in torchq(home, "--context", "prod", "queue", "list").err
        assert PROD in torchq(home, "queue", "list", KUBECONFIG=str(home / ".kube" / "config")).err
        shown = json.loads(torchq(home, "config", "-o", "json").out)["kubeconfig"]
        assert (shown["value"], shown["source"]) == (str(stack.layout.kubeconfig), "torchq local up")

        stack.kill("supervisor")
        crashed = until(lambda: torchq(home, "queue", "create", "lost"), lambda said: "not running" in said.err)
        assert (crashed.code, PROD in crashed.err) == (1, False), "another cluster was used"
        assert torchq(home, "local", "up", *local, *stack.options).code == 0
        assert "team-a" in torchq(home, "queue", "list").out
    finally:
        down = torchq(home, "local", "down", *local)
    assert "torchq's commands go to prod again" in down.out
    assert PROD in torchq(home, "queue", "list").err
    assert (home / ".kube" / "config").read_bytes() == kubeconfig
    assert not [path for path in home.rglob("*") if path.is_file() and ".kube" not in path.parts]


def test_local_up_no_current_leaves_the_current_cluster_unchanged(make_stack: Make, home: Path) -> None:
    stack = make_stack()
    try:
        up = torchq(home, "local", "up", "--no-current", "--data", str(stack.data), *stack.options)
        assert "torchq's commands still go to prod" in up.out
        assert PROD in torchq(home, "queue", "list").err
        assert not (home / ".config").exists()
    finally:
        assert torchq(home, "local", "down", "--data", str(stack.data)).out == "the cluster is down\n"
