"""The benchmark of the client: its figures, its tree, and its objects."""

from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.benchmarks.client import calls, follows, packing, waits
from bench.benchmarks.client.follows import Counted
from bench.benchmarks.client.starts import Start, figures
from bench.cli import main
from bench.errors import BenchError
from bench.support import api_counts
from crds.torchjob import torchjob

METRICS = """
apiserver_request_total{client="torchq",verb="GET",resource="torchjobs.train.distributed.io",subresource=""} 9
apiserver_request_total{client="torchq-python",verb="LIST",resource="torchjobs.train.distributed.io",subresource=""} 2
apiserver_request_total{client="torchq-python",verb="WATCH",resource="torchjobs.train.distributed.io",subresource=""} 1
"""


def test_the_requests_of_a_client_are_those_with_its_whole_name() -> None:
    assert api_counts.of_client(METRICS, "torchq-python") == {"LIST torchjobs": 2, "WATCH torchjobs": 1}
    assert api_counts.of_client(METRICS, "torchq") == {"GET torchjobs": 9}


def test_every_request_of_a_wait_but_its_list_and_its_watch_is_another_one() -> None:
    requests = Counter({"LIST torchjobs": 2, "WATCH torchjobs": 1, "GET torchjobs": 3, "LIST pods": 4})
    found = waits.figures(requests, 0.25)
    assert found == {"watches": 1, "list_pages": 2, "other_requests": 7, "late_ms": 250}


def test_a_run_is_compared_with_the_submission_of_its_own_pair() -> None:
    pairs = [
        (Start(1.0, 2.0, 3.0), Start(0.5, 1.0, 1.5)),
        (Start(9.0, 9.0, 9.0), Start(8.0, 8.0, 8.0)),
        (Start(2.0, 3.0, 4.0), Start(1.5, 2.5, 3.5)),
    ]
    found = figures(pairs)
    assert (found["run_handle_s"], found["run_pod_s"], found["submit_command_s"]) == (2.0, 3.0, 3.5)
    assert (found["run_over_submit_pod_s"], found["run_over_submit_command_s"]) == (1.0, 1.0)


def test_the_same_arguments_make_the_same_tree(tmp_path: Path) -> None:
    for name in ("one", "two"):
        packing.make_tree(tmp_path / name, files=21, kib=2)
    one, two = (
        {path.relative_to(tmp_path / name): path.read_bytes() for path in (tmp_path / name).rglob("*.py")}
        for name in ("one", "two")
    )
    assert one == two
    assert len(one) == 21
    assert {len(content) for content in one.values()} == {2048}
    assert len(set(one.values())) == 21


def test_a_job_whose_output_is_followed_is_valid_and_waits_for_its_gate(tmp_path: Path) -> None:
    manifest = follows.job("printing", tmp_path, 1)
    manifest["metadata"] |= {"namespace": "b", "uid": "u", "creationTimestamp": "2026-01-02T03:04:05Z"}
    manifest["metadata"]["resourceVersion"] = "1"
    job = torchjob.parse(manifest)
    assert [task.num_tasks for task in job.spec.tasks.values()] == [follows.PODS]
    [task] = manifest["spec"]["torchTaskSpecs"].values()
    script = task["template"]["spec"]["containers"][0]["command"][-1]
    assert f"{tmp_path}/gate" in script
    assert f"head -n {2**20 // follows.LINE_BYTES};" in script


@pytest.mark.parametrize(("ready", "more"), [(8, -1), (8, 1), (7, 0)])
def test_a_follower_that_lost_or_repeated_a_line_gives_no_figure(ready: int, more: int) -> None:
    counted = Counted("printing", 1)
    counted.ready, counted.count = ready, follows.PODS * 2**20 // follows.LINE_BYTES + more
    with pytest.raises(BenchError, match="job printing"):
        counted.check()


def test_a_call_that_fails_on_any_thread_ends_the_measurement() -> None:
    left = iter([None, None])
    with pytest.raises(StopIteration):
        calls.per_second(lambda: next(left), threads=2, seconds=60)


@pytest.mark.parametrize("arguments", [["--handles", "0"], ["--seconds", "0"], ["--mib", "x"]])
def test_an_invalid_option_ends_with_one_message(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, ["client", *arguments])
    assert done.exit_code == 2
    assert "Traceback" not in done.stderr
