"""A model from the job that trains it to the job that reads it, on a whole cluster."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.acceptance.stack import Stack, fresh, run
from tests.support.acceptance.warm import CommandResult

TRAIN = """
import torchq
(torchq.model() / "model.pt").write_text("weights")
torchq.result(accuracy=0.953)
"""
EVALUATE = """
import os, torchq
print("read", (torchq.model("%s") / "model.pt").read_text())
"""


def torchq(stack: Stack, folder: Path, *arguments: str, code: int = 0) -> CommandResult:
    said = run(*arguments, cwd=folder, environment=stack.environment)
    assert (said.code, "Traceback" in said.err) == (code, False), said
    return said


@pytest.mark.smoke
def test_model_is_found_by_its_name_and_read_by_the_next_job(shared: Stack, tmp_path: Path) -> None:
    name = fresh()
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "evaluate.py").write_text(EVALUATE % name)
    torchq(shared, tmp_path, "run", "--model", name, "--", "python", "train.py")
    (found,) = json.loads(torchq(shared, tmp_path, "model", "list", name, "-o", "json").out)["items"]
    folder = Path(torchq(shared, tmp_path, "model", "path", name).out.strip())
    assert (folder / "model.pt").read_text() == "weights"
    command = "find . -type f -printf '%P\\0' | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum"
    digest = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=True).stdout
    assert found["status"]["digest"] == f"sha256:{digest.split()[0]}"
    assert json.loads(found["status"]["result"]) == {"accuracy": 0.953}
    assert (found["apiVersion"], found["kind"]) == ("model.distributed.io/v1alpha1", "ModelVersion")
    assert f"Finished: {found['status']['finishTime']}" in torchq(shared, tmp_path, "model", "show", name).out
    said = torchq(shared, tmp_path, "run", "--with-model", name, "--", "python", "evaluate.py")
    assert "read weights" in said.out
    assert f"reads model {name}@{found['spec']['version']}" in said.err
    torchq(shared, tmp_path, "run", "-d", "--with-model", name, "--name", f"{name}-late", "--", "sleep", "600")
    kept = torchq(shared, tmp_path, "model", "delete", name, "--yes", code=1)
    assert f"is read by default/{name}-late" in kept.err
    torchq(shared, tmp_path, "job", "delete", f"{name}-late")
    torchq(shared, tmp_path, "model", "delete", name, "--yes")
    assert not folder.exists()
    assert "there is no model" in torchq(shared, tmp_path, "model", "show", name, code=1).err
