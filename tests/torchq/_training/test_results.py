"""`result` in programs of users: the process that gives the result, where the result is stored, and what is refused."""

import errno
import json
import os
from pathlib import Path

import pytest

from coordinator.follow import kept_results
from reconcilers.views import pod_result
from tests.support.training.program import marked, run
from torchq._errors import Invalid
from torchq._training import end_message, results
from torchq._training.large_results import MOST_LOGGED
from torchq._training.marked_lines import RESULT
from torchq._training.results import MOST_BYTES

pytestmark = pytest.mark.servers


@pytest.mark.parametrize("rank", [{}, {"RANK": "0"}, {"RANK": "0", "LOCAL_RANK": "0"}])
def test_rank_zero_writes_its_last_result_for_the_job_and_prints_it(tmp_path: Path, rank: dict[str, str]) -> None:
    file = tmp_path / "termination-log"
    file.write_text("x" * 5000)
    done = run(
        "result(accuracy=0.5, note='first')\nresult({'accuracy': 0.75})", {**rank, "TORCHQ_RESULT_FILE": str(file)}
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert file.read_text() == '{"torchq-result":{"accuracy":0.75}}'
    assert marked(done.stdout, RESULT) == ['{"accuracy":0.5,"note":"first"}', '{"accuracy":0.75}']


def test_a_result_keeps_the_mark_of_a_node_that_asked_the_container_to_stop(tmp_path: Path) -> None:
    file = tmp_path / "termination-log"
    file.write_text(f"an earlier text\n{pod_result.MARK}\n")
    run("result(accuracy=0.5)", {"TORCHQ_RESULT_FILE": str(file)})
    assert file.read_text().split("\n") == ['{"torchq-result":{"accuracy":0.5}}', pod_result.MARK, ""]


def test_a_result_stays_where_a_full_disk_takes_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = str(tmp_path / "termination-log")
    end_message.put(file, end_message.RESULT, '{"accuracy":0.75}')
    end_message.put(file, end_message.RESULT, '{"accuracy":0.5}')
    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match="No space"):
        end_message.put(file, end_message.MODEL, '{"files":1}')
    assert Path(file).read_text() == '{"torchq-result":{"accuracy":0.5}}'


def test_other_ranks_give_no_result(tmp_path: Path) -> None:
    file = tmp_path / "termination-log"
    variables = {"RANK": "3", "TORCHQ_RESULT_FILE": str(file)}
    assert (run("result(accuracy=0.5)", variables).stdout, file.exists()) == ("", False)


def test_reports_that_wait_are_printed_before_the_result() -> None:
    lines = run("for step in range(50_000): report(step=step)\nresult(accuracy=0.5)").stdout.splitlines()
    assert '"step":49999' in lines[-2]
    assert lines[-1] == 'torchq-result: {"accuracy":0.5}'


def test_outside_a_job_a_result_is_printed() -> None:
    assert run("result(accuracy=0.5)").stdout == 'torchq-result: {"accuracy":0.5}\n'


def test_a_result_without_a_value_is_refused() -> None:
    with pytest.raises(Invalid, match="result: has no value"):
        results.result()


def test_the_largest_result_fits_in_a_termination_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "termination-log"
    monkeypatch.setenv("TORCHQ_RESULT_FILE", str(file))
    monkeypatch.delenv("RANK", raising=False)
    results.result(text="x" * (MOST_BYTES - len('{"text":""}')))
    assert os.path.getsize(file) == MOST_BYTES + len('{"torchq-result":}')


def test_a_file_that_cannot_be_written_is_named_and_ends_nothing() -> None:
    done = run("result(accuracy=0.5)", {"TORCHQ_RESULT_FILE": "/proc/none/file"})
    assert done.returncode == 0
    assert "the result cannot be written to /proc/none/file" in done.stderr
    assert marked(done.stdout, RESULT) == ['{"accuracy":0.5}']


@pytest.mark.parametrize(
    ("outputs", "size", "is_in_file", "is_logged"),
    [
        pytest.param("here", 4_000, True, False, id="outputs on one machine"),
        pytest.param("claim", 30_000, True, True, id="outputs on a claim"),
        pytest.param("", 30_000, False, True, id="no outputs"),
        pytest.param("/proc/none", 30_000, False, True, id="outputs that cannot be written"),
        pytest.param("here", MOST_LOGGED + 1, True, False, id="too large for the log, with outputs"),
        pytest.param("", MOST_LOGGED + 1, False, False, id="too large for the log"),
    ],
)
def test_a_large_result_is_kept_where_it_can_be_found(
    tmp_path: Path, outputs: str, size: int, is_in_file: bool, is_logged: bool
) -> None:
    file, folder = tmp_path / "termination-log", str(tmp_path) if outputs in ("here", "claim") else outputs
    claim = "from torchq._training import large_results\nlarge_results.ON_CLAIM = " + repr(folder)
    code = f"{claim if outputs == 'claim' else ''}\nresult(text='x' * {size})"
    done = run(code, {"TORCHQ_RESULT_FILE": str(file), "TORCHQ_OUTPUT": folder})
    assert done.returncode == 0
    text = json.dumps({"text": "x" * size}, separators=(",", ":"))
    given = json.loads(file.read_text())["torchq-result"]
    assert [json.loads(line) for line in marked(done.stdout, RESULT)] == [given]
    kept = kept_results.find(given)
    assert kept is not None
    assert (kept.bytes, bool(kept.file), kept.is_logged) == (len(text), is_in_file, is_logged)
    if is_in_file:
        assert (tmp_path / kept.file).read_text() == text
        assert [each.name for each in tmp_path.glob(".*")] == []
    assert kept.join([f"[rank0]:{line}" for line in done.stdout.splitlines()]) == (text if is_logged else "")
    assert ("is lost: the log keeps at most 1,048,576" in done.stderr) is not (is_in_file or is_logged)


def test_what_is_no_json_is_kept_by_its_repr(tmp_path: Path) -> None:
    file = tmp_path / "termination-log"
    variables = {"TORCHQ_RESULT_FILE": str(file), "TORCHQ_OUTPUT": str(tmp_path / "outputs")}
    done = run("result(loss=0.5, seen={1})", variables)
    assert (done.returncode, done.stderr) == (0, "result.seen: is no JSON, so its repr is kept\n")
    assert json.loads(file.read_text()) == {"torchq-result": {"loss": 0.5, "seen": "{1}"}}
    assert (tmp_path / "outputs" / "torchq-result.txt").read_text() == "{'loss': 0.5, 'seen': {1}}"
