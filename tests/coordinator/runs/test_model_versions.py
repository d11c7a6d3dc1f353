"""Which version of a model a user means, and what a job gets of it."""

from typing import Any

import pytest

from coordinator.runs import model_versions
from coordinator.runs.model_versions import NoSuchModel
from crds.model_version import ModelVersion


def version(name: str, at: str, **spec: Any) -> ModelVersion:
    model, _, label = name.rpartition("-")
    fields = {"modelName": model, "version": label, "path": f"team/{name}/model", **spec}
    status = {"finishTime": f"2026-01-0{at}T00:00:00Z", "digest": "sha256:1"}
    metadata = {"name": name, "namespace": "team"}
    return ModelVersion.model_validate({"metadata": metadata, "spec": fields, "status": status})


OLD, NEW, OTHER = version("digits-aaaaa", "1"), version("digits-bbbbb", "2"), version("faces-ccccc", "3")
THEIRS = version("mv-train-ddddd", "4", modelName="theirs", version="", path="")
ALL = [THEIRS, OTHER, NEW, OLD]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("digits", [NEW, OLD]),
        ("digits@aaaaa", [OLD]),
        ("digits@digits-aaaaa", [OLD]),
        ("theirs@mv-train-ddddd", [THEIRS]),
    ],
)
def test_name_means_the_newest_version_first(text: str, found: list[ModelVersion]) -> None:
    assert model_versions.named(ALL, text) == found


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["none"], "torchq run --model none"),
        (["digits@zzzzz"], "there are digits@bbbbb, digits@aaaaa"),
        (["digits", "digits@aaaaa"], "named twice"),
        (["theirs"], "names no folder"),
    ],
)
def test_what_no_job_can_read_is_refused_with_words(texts: list[str], words: str) -> None:
    with pytest.raises(NoSuchModel, match=words):
        model_versions.inputs(ALL, texts, embedded=True)


def test_job_gets_the_version_of_this_moment_and_on_kubernetes_its_claim() -> None:
    fixed = {"modelName": "digits", "version": "bbbbb", "path": "team/digits-bbbbb/model", "digest": "sha256:1"}
    assert model_versions.inputs(ALL, ["digits"], embedded=True) == [fixed]
    with pytest.raises(NoSuchModel, match="names no claim"):
        model_versions.inputs(ALL, ["digits"], embedded=False)
    on_claim = version("digits-bbbbb", "2", claimName="models")
    assert model_versions.inputs([on_claim], ["digits"], embedded=False) == [{**fixed, "claimName": "models"}]
