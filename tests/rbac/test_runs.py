"""`torchq run` under the role of users alone: the command does all of its work, and names a missing permission."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coordinator.code import config_maps
from coordinator.rbac.permissions import USER, PolicyRule
from crds import labels
from crds.api_resources import CONFIG_MAPS, TORCHJOBS
from kube.api import Manifest
from tests.support.coordinator.desk import clear, remove
from tests.support.rbac.access import TENANT, Access, Gated
from tests.support.rbac.scenes import Stage
from tests.support.waiting import until

Run = Callable[..., str]
[CODE_RULE] = (rule for rule in USER.all_rules() if rule.resource == CONFIG_MAPS)
CODE_VERBS = [verb for verb in CODE_RULE.all_verbs if verb != "delete"]
"""The verbs that `torchq run` needs. Some API servers require `delete`, too, before they change owners."""


@pytest.fixture
def stage(
    access: Access, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> Iterator[Stage]:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)")
    monkeypatch.chdir(folder)
    yield Stage(access, monkeypatch, caplog, tmp_path)
    for item in code(access):
        remove(access.admin, CONFIG_MAPS, item["metadata"]["name"], TENANT)
    clear(access.admin)


@pytest.fixture
def run(stage: Stage) -> Run:
    """Return a function that runs the folder as a user, and returns the output of the command."""
    command = ("--image", "torch:1", "--", "python", "train.py")
    return lambda *options, code=0: stage.run(USER, "run", *options, *command, code=code)


def code(access: Access) -> list[Manifest]:
    return access.admin.list(CONFIG_MAPS, TENANT, label_selector=labels.CODE).items


def jobs(access: Access) -> dict[str, Manifest]:
    return {item["metadata"]["name"]: item for item in access.admin.list(TORCHJOBS, TENANT).items}


def test_a_user_runs_adds_owners_takes_another_copy_and_replaces(
    stage: Stage, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_maps, "MOST_OWNERS", 2)
    for name in ("one", "two", "three"):
        run("-d", "--name", name)
    run("-d", "--name", "three", "--replace")
    assert jobs(stage.access).keys() == {"one", "two", "three"}
    assert not any((job["spec"].get("schedulingPolicy") or {}).get("hold") for job in jobs(stage.access).values())
    owners = [{owner["name"] for owner in item["metadata"]["ownerReferences"]} for item in code(stage.access)]
    assert sorted(map(sorted, owners)) == [["one", "two"], ["three"]]


def test_a_user_follows_a_run_to_its_end(stage: Stage, run: Run) -> None:
    def end() -> None:
        until(lambda: jobs(stage.access), lambda found: "train" in found and not _is_held(found["train"]))
        ended = {"phase": "Succeeded", "queue": {"name": TENANT}}
        stage.admin.patch(TORCHJOBS, "train", {"status": ended}, TENANT, subresource="status")

    with ThreadPoolExecutor(1) as threads:
        ending = threads.submit(end)
        said = run("--name", "train")
        ending.result()
    assert "Succeeded" in said
    assert "forbidden" not in said


@pytest.mark.parametrize("verb", CODE_VERBS)
def test_a_missing_permission_for_code_names_the_role_and_leaves_no_job(stage: Stage, run: Run, verb: str) -> None:
    if verb == "patch":
        run("-d", "--name", "first")  # the code of this job then gets another owner
    before = jobs(stage.access).keys()
    rule: PolicyRule = CODE_RULE
    with stage.access.without(USER, rule, verb):
        said = run("-d", "--name", "train", code=1)
    assert f'cannot {verb} resource "configmaps"' in said
    assert said.count(USER.file) == 1
    assert "Traceback" not in said
    assert jobs(stage.access).keys() == before


def test_a_server_that_guards_owners_names_the_role_too(stage: Stage, run: Run) -> None:
    if isinstance(stage.access, Gated):
        pytest.skip("only a real API server asks for it")
    run("-d", "--name", "first")
    with stage.access.without(USER, CODE_RULE, "delete"):
        said = run("-d", "--name", "train", code=1)
    assert "cannot set an ownerRef on a resource you can't delete" in said
    assert said.count(USER.file) == 1
    assert jobs(stage.access).keys() == {"first"}


def _is_held(job: Manifest) -> bool:
    return bool((job["spec"].get("schedulingPolicy") or {}).get("hold"))
