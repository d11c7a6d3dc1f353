"""`result` in programs of users: who gives it, where it goes, and what is refused."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from reconcilers.views import pod_result
from tests.support.training.program import marked, run
from torchq._errors import Invalid
from torchq._training import results
from torchq._training.marked_lines import RESULT
from torchq._training.results import MOST_BYTES


@pytest.mark.parametrize("rank", [{}, {"RANK": "0"}, {"RANK": "0", "LOCAL_RANK": "0"}])
def test_rank_zero_writes_its_last_result_for_the_job_and_prints_it(tmp_path: Path, rank: dict[str, str]) -> None:
    file = tmp_path / "termination-log"
    file.write_text("x" * 5000)
    done = run("result(accuracy=0.5, note='first')\nresult(accuracy=0.75)", {**rank, "TORCHQ_RESULT_FILE": str(file)})
    assert (done.returncode, done.stderr) == (0, "")
    assert file.read_text() == '{"torchq-result":{"accuracy":0.75}}'
    assert marked(done.stdout, RESULT) == ['{"accuracy":0.5,"note":"first"}', '{"accuracy":0.75}']


def test_a_result_keeps_the_mark_of_a_node_that_asked_the_container_to_stop(tmp_path: Path) -> None:
    file = tmp_path / "termination-log"
    file.write_text(f"an earlier text\n{pod_result.MARK}\n")
    run("result(accuracy=0.5)", {"TORCHQ_RESULT_FILE": str(file)})
    assert file.read_text().split("\n") == ['{"torchq-result":{"accuracy":0.5}}', pod_result.MARK, ""]


def test_other_ranks_give_no_result_but_check_it(tmp_path: Path) -> None:
    file = tmp_path / "termination-log"
    variables = {"RANK": "3", "TORCHQ_RESULT_FILE": str(file)}
    assert (run("result(accuracy=0.5)", variables).stdout, file.exists()) == ("", False)
    assert "accuracy: is nan" in run("result(accuracy=float('nan'))", variables).stderr


def test_reports_that_wait_are_printed_before_the_result() -> None:
    lines = run("for step in range(50_000): report(step=step)\nresult(accuracy=0.5)").stdout.splitlines()
    assert '"step":49999' in lines[-2]
    assert lines[-1] == 'torchq-result: {"accuracy":0.5}'


def test_outside_a_job_a_result_is_printed() -> None:
    assert run("result(accuracy=0.5)").stdout == 'torchq-result: {"accuracy":0.5}\n'


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "result: has no value"),
        ({"model": object()}, "result.model: object is not JSON"),
        ({"text": "x" * 3500}, "result: has 3,511 bytes of JSON, and at most 3,500 go. Write .* torchq.output"),
        ({"text": "\u00e9" * 600}, "result: has 3,611 bytes"),
    ],
)
def test_a_result_that_cannot_go_raises_and_leaves_the_last_one(
    values: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "termination-log"
    monkeypatch.setenv("TORCHQ_RESULT_FILE", str(file))
    monkeypatch.delenv("RANK", raising=False)
    results.result(accuracy=0.5)
    with pytest.raises(Invalid, match=words):
        results.result(**values)
    assert json.loads(file.read_text()) == {"torchq-result": {"accuracy": 0.5}}


def test_the_largest_result_fits_in_a_termination_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "termination-log"
    monkeypatch.setenv("TORCHQ_RESULT_FILE", str(file))
    monkeypatch.delenv("RANK", raising=False)
    results.result(text="x" * (MOST_BYTES - len('{"text":""}')))
    assert os.path.getsize(file) == MOST_BYTES + len('{"torchq-result":}')


def test_a_file_that_cannot_be_written_is_named() -> None:
    done = run("result(accuracy=0.5)", {"TORCHQ_RESULT_FILE": "/proc/none/file"})
    assert "the result cannot be written to /proc/none/file" in done.stderr
    assert marked(done.stdout, RESULT) == ['{"accuracy":0.5}']
