"""Training with torch.distributed, started by python and by torchrun."""

import copy
import importlib.util
from pathlib import Path

import pytest
import yaml

from tests.support.acceptance.stack import Stack, fresh

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed (the extra `demo`)"),
]

DIGITS = Path(__file__).parents[2] / "examples" / "digits"


@pytest.mark.parametrize("program", ["python", "torchrun"])
def test_two_processes_train_one_model(stack: Stack, program: str) -> None:
    body = copy.deepcopy(yaml.safe_load((DIGITS / "torchjob.yaml").read_text()))
    body["metadata"]["name"] = name = fresh(program)
    for task in body["spec"]["torchTaskSpecs"].values():
        task["template"]["spec"]["containers"][0] |= {
            "command": [program, "train.py", "--epochs", "4"],
            "workingDir": str(DIGITS),
        }
    stack.submit(body)
    stack.reach(name, "Succeeded")
    assert "accuracy" in stack.torchq("job", "logs", name)
