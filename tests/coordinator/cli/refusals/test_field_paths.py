"""The values and lines that the path of a field names."""

import pytest

from coordinator.cli.refusals import field_paths

TEXT = """\
# a comment
kind: TorchJob
---
spec:
  limits: {nvidia.com/gpu: 1, nvidia.com: 2}
  containers:
    - name: a
      ports:
        - 1
        - 2
  members:
    Worker: 3
"""
BODY = {
    "spec": {
        "limits": {"nvidia.com/gpu": 1, "nvidia.com": 2},
        "containers": [{"name": "a", "ports": [1, 2]}],
        "members": {"Worker": 3},
    }
}


@pytest.mark.parametrize(
    ("path", "line", "value"),
    [
        ("spec", 4, BODY["spec"]),
        ("spec.limits.nvidia.com/gpu", 5, 1),
        ("spec.limits[nvidia.com/gpu]", 5, 1),
        ("spec.containers[0].name", 7, "a"),
        ("spec.containers[0].ports[1]", 10, 2),
        ("spec.members[Worker]", 12, 3),
        ("spec.containers[7].name", 6, None),
        ("spec.containers[x]", 6, None),
        ("spec.missing.field", 4, None),
        ("spec.members.Worker.deeper", 12, None),
    ],
)
def test_a_path_leads_to_a_line_and_a_value(path: str, line: int, value: object) -> None:
    assert field_paths.line(TEXT, 2, path) == line
    assert field_paths.value(BODY, path) == (value is not None, value)


@pytest.mark.parametrize(("text", "number"), [(TEXT, 3), ("a: [", 1), ("[" * 5_000, 1)])
def test_a_text_without_that_document_has_no_line(text: str, number: int) -> None:
    assert field_paths.line(text, number, "spec") is None
