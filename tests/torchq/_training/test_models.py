"""The folders of models in training code, and the count of the files when rank 0 ends."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.training.program import run
from torchq._errors import NotFound, Refused
from torchq._training import models

SCRIPT = "folder = torchq.model()\n(folder / 'sub').mkdir()\n(folder / 'sub' / 'b').write_text('two')\n"


def files(folder: Path) -> None:
    (folder / "sub").mkdir(parents=True)
    for name, text in (("model.pt", "one"), ("sub/b", "two"), ("sub.txt", ""), ("Z\\\n1", "4")):
        (folder / name).write_text(text)
    (folder / "latest").symlink_to("model.pt")
    (folder / "out").symlink_to("/etc/passwd")


@pytest.mark.servers
def test_digest_is_the_one_that_sha256sum_gives(tmp_path: Path) -> None:
    files(tmp_path / "model")
    command = "find . -type f -printf '%P\\0' | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum"
    said = subprocess.run(["bash", "-c", command], cwd=tmp_path / "model", capture_output=True, text=True, check=True)
    digest = f"sha256:{said.stdout.split()[0]}"
    assert models.count(tmp_path / "model") == {"files": 4, "bytes": 7, "digest": digest}


@pytest.mark.parametrize(("wish", "is_hashed"), [(None, False), (True, True)])
def test_large_models_are_hashed_only_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wish: bool | None, is_hashed: bool
) -> None:
    files(tmp_path / "model")
    monkeypatch.setattr(models, "MOST_BYTES", 6)
    assert bool(models.count(tmp_path / "model", wish)["digest"]) is is_hashed


@pytest.mark.servers
@pytest.mark.parametrize(
    ("script", "variables", "parts"),
    [
        pytest.param(SCRIPT + "result(accuracy=0.5)", {}, {"torchq-result", "torchq-model"}, id="beside a result"),
        pytest.param(SCRIPT, {"RANK": "0"}, {"torchq-model"}, id="alone"),
        pytest.param(SCRIPT, {"RANK": "1"}, set(), id="another rank"),
        pytest.param(SCRIPT + "raise ValueError('bad')", {}, set(), id="an exception"),
    ],
)
def test_rank_zero_counts_the_files_when_its_program_ends(
    tmp_path: Path, script: str, variables: dict[str, str], parts: set[str]
) -> None:
    file = tmp_path / "termination-log"
    names = {"TORCHQ_RESULT_FILE": str(file), "TORCHQ_MODEL_PATH": str(tmp_path / "model")}
    run(f"import torchq\n{script}", {**names, **variables})
    said = json.loads(file.read_text()) if file.exists() else {}
    assert said.keys() == parts
    if "torchq-model" in parts:
        assert (said["torchq-model"]["files"], said["torchq-model"]["bytes"]) == (1, 3)


def test_job_without_a_model_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHQ_MODEL_PATH", raising=False)
    monkeypatch.setenv("TORCHQ_JOB", "team/train")
    with pytest.raises(Refused, match="torchq run --model NAME"):
        models.model()
    with pytest.raises(Refused, match="--with-model digits"):
        models.model("digits")


def test_model_that_the_job_reads_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCHQ_MODEL_INPUT_DIGITS_LARGE", str(tmp_path))
    with pytest.raises(NotFound, match="its files were deleted"):
        models.model("digits-large")
    (tmp_path / "model.pt").touch()
    assert models.model("digits-large") == tmp_path
