"""An unmodified script of Hugging Face transformers reports to torchq from two nodes.

The extra `huggingface` has the package; without it the test is skipped, and the bodies that the package sends are
replayed in tests/coordinator/reports/test_kubeflow_body.py.
"""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from tests.support.acceptance.stack import Stack, fresh, run

SCRIPT = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

sizes = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 32, (64, 8))]
arguments = TrainingArguments(
    output_dir="out", max_steps=40, logging_steps=10, use_cpu=True, save_strategy="no", dataloader_pin_memory=False
)
Trainer(model=LlamaForCausalLM(LlamaConfig(**sizes)), args=arguments, train_dataset=rows).train()
"""


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="the extra `huggingface` is not installed")
def test_a_plain_script_of_transformers_reports_its_loss_from_two_nodes(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    name = fresh("hugging")
    options = ("--nodes", "2", "--cpus", "100m", "--name", name)
    command = (sys.executable, "-m", "torch.distributed.run", "train.py")
    said = run("run", *options, "--", *command, cwd=tmp_path, environment=stack.environment)
    assert said.code == 0, said
    [report] = map(json.loads, stack.torchq("job", "reports", name).splitlines())
    assert (report["pod"], report["step"], report["progressPercentage"]) == ("master-0", 40, 100)
    assert 0 < report["loss"] < 10
