"""Files of other systems that users give to `torchq submit`."""

from pathlib import Path

import pytest

from coordinator.cli import submission
from coordinator.cli.manifest_files import BadManifest


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kind: PyTorchJob\napiVersion: kubeflow.org/v1\n", "Kubeflow's PyTorchJob"),
        ("kind: TenantQueue\napiVersion: train.distributed.io/v1alpha1\n", "torchq queue create NAME"),
        ("#!/bin/bash\n#SBATCH --nodes=2\nsrun python train.py\n", "this is an sbatch script: `torchq run"),
        ("import torch\n\nprint(torch)\n", "`torchq run -- python FILE`"),
    ],
)
def test_a_file_of_another_system_is_refused_with_the_way_to_torchq(tmp_path: Path, text: str, expected: str) -> None:
    (file := tmp_path / "file").write_text(text)
    with pytest.raises(BadManifest, match=str(file)) as refused:
        submission.read([str(file)], "default", "/")
    assert expected in str(refused.value)


@pytest.mark.parametrize("text", ["kind: Unheard\n", "- a list\n", "kind: {a: b}\n"])
def test_a_file_of_an_unknown_kind_is_only_refused(tmp_path: Path, text: str) -> None:
    (file := tmp_path / "file").write_text(text)
    with pytest.raises(BadManifest, match=r"not a TorchJob \(apiVersion: [^)]*\)$"):
        submission.read([str(file)], "default", "/")
