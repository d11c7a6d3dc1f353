"""The example that pushes a model: it is a valid job, and the push comes after the training and before the end."""

from pathlib import Path

import yaml

from crds.torchjob import torchjob

FILE = Path(__file__).parents[2] / "examples" / "publish" / "job.yaml"


def test_the_push_decides_whether_there_is_a_version() -> None:
    job = torchjob.parse_submitted(yaml.safe_load(FILE.read_text()))
    assert job.spec.model_output is not None
    assert job.spec.outputs is not None, "Kubernetes needs a claim"
    assert [each.tasks for each in job.spec.stages] == [("Master",), ("Publish",)]
    assert job.spec.success_policy == "AllTasks", "a version stands for a model that was pushed"
