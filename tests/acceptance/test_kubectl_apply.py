"""Jobs created by kubectl, whose folder torchq does not know, and the folder of a job in `torchq job show`."""

from pathlib import Path
from typing import Any

import pytest

from crds.api_resources import TORCHJOBS
from tests.support.acceptance.jobs import job
from tests.support.acceptance.stack import Stack, fresh, until

HINT = "train.py is missing: a job that is made by kubectl runs in an empty folder"


def applied(stack: Stack, command: list[str], folder: Path | None = None, **options: Any) -> str:
    """Create a job through the API, without a submit directory, as kubectl does. Return its name."""
    name = fresh()
    body = job(name, command, **options)
    if folder:
        body["spec"]["torchTaskSpecs"]["Master"]["template"]["spec"]["containers"][0]["workingDir"] = str(folder)
    stack.api.create(TORCHJOBS, body, "default")
    return name


def told(stack: Stack, name: str) -> str:
    """Wait until the job has failed, and return the message of the condition Failed."""
    [condition] = [each for each in stack.reach(name, "Failed")["status"]["conditions"] if each["type"] == "Failed"]
    return str(condition["message"])


@pytest.fixture
def script(stack: Stack) -> Path:
    path = stack.folder / "train.py"
    path.write_text("print('trained')")
    return path


@pytest.mark.parametrize("command", [["python", "train.py"], ["sh", "-c", "cd .; python train.py --lr 0.1"]])
def test_a_missing_script_of_a_kubectl_job_is_explained(stack: Stack, script: Path, command: list[str]) -> None:
    message = told(stack, applied(stack, command))
    assert HINT in message
    assert "workingDir" in message
    assert "torchq submit" in message


def test_job_show_explains_a_missing_script_while_the_container_restarts(stack: Stack, script: Path) -> None:
    name = applied(stack, ["python", "train.py"], policy="OnFailure")
    until(lambda: HINT in stack.torchq("job", "show", name))


def test_a_job_with_its_working_folder_succeeds(stack: Stack, script: Path) -> None:
    stack.reach(applied(stack, ["python", "train.py"], script.parent), "Succeeded")
    [handle] = stack.submit(job(name := fresh(), ["python", "train.py"]))
    assert handle.startswith(f"default/{name}/")
    stack.reach(name, "Succeeded")


@pytest.mark.parametrize(
    "command",
    [
        ["sh", "-c", "echo a.txt b/c.txt; exit 2"],
        ["python", "/nowhere/train.py"],
        ["python", "-c", "open('/nowhere/train.py')"],
        ["python", "-c", "import no_such_module"],
    ],
)
def test_a_failure_without_a_missing_file_has_no_hint_about_kubectl(stack: Stack, command: list[str]) -> None:
    assert "kubectl" not in told(stack, applied(stack, command))


def test_job_show_has_image_folder_and_command(stack: Stack, script: Path) -> None:
    command = ["python", "-c", "import sys", *(f"--option-{number}" for number in range(20))]
    stack.submit(job(submitted := fresh(), command))
    placed, folderless = applied(stack, command, script.parent), applied(stack, command)
    for name, folder in ((submitted, str(stack.folder)), (placed, str(script.parent)), (folderless, "")):
        [task] = stack.output_json("job", "show", name)["details"]["tasks"]
        assert (task["image"], task["command"], task["folder"]) == ("none", command, folder)
        shown = stack.torchq("job", "show", name)
        [line] = [line for line in shown.splitlines() if "--option-0" in line]
        assert line.split()[:4] == ["Master", "none", folder or "-", "python"]
        assert line.endswith("--option-3 ...")


def test_a_missing_script_of_a_submitted_job_has_no_hint_about_kubectl(stack: Stack) -> None:
    stack.submit(job(name := fresh(), ["python", "nowhere.py"]))
    message = told(stack, name)
    assert "nowhere.py" in message
    assert "kubectl" not in message
