"""The pod benchmark: its figures, its objects, and a short run from end to end."""

import pytest
from click.testing import CliRunner

from bench.benchmarks import pods
from bench.cli import main
from crds.torchjob import demand, torchjob


def test_shares_compare_with_the_bare_client_before_and_after_the_run() -> None:
    alone = [pods.Part(rate, 2.0) for rate in (100.0, 200.0, 400.0)]
    one = [pods.Part(90.0, 3.0), pods.Part(240.0, 5.0)]
    found = pods.figures(alone, one, [pods.Part(150.0, 4.0), pods.Part(300.0, 4.0)])
    assert (found["shares_one_job"], found["shares_many_jobs"]) == ([0.6, 0.8], [1.0, 1.0])
    assert (found["share_one_job"], found["share_many_jobs"]) == (0.7, 1.0)
    assert (found["alone_pods_per_s"], found["one_job_pods_per_s"], found["one_job_cpu_ms_per_pod"]) == (200, 165, 4)


def test_the_tasks_of_a_benchmark_job_have_no_dependencies() -> None:
    manifest = pods.job("one-0", "q", "one", 5)
    manifest["metadata"] |= {"namespace": "b", "uid": "u", "creationTimestamp": "2026-01-02T03:04:05Z"}
    manifest["metadata"]["resourceVersion"] = "1"
    job = torchjob.parse(manifest)
    assert [task.num_tasks for task in job.spec.tasks.values()] == [1, 4]
    assert all(not task.depends_on for task in job.spec.tasks.values())
    assert demand.job_charge(job.spec) == {"jobs": 1, "pods": 5, "cpu": 5000}


def test_bare_returns_the_pod_without_its_job_and_node() -> None:
    pod = {
        "metadata": {"name": "one-0-worker-0", "uid": "u", "labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"containers": [{"name": "torch"}], "nodeName": "n", "hostname": "h"},
    }
    bare = pods.with_name(pods.bare(pod), "x-1")
    assert bare == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x-1", "annotations": {"c": "d"}},
        "spec": {"containers": [{"name": "torch"}], "hostname": "h"},
    }


@pytest.mark.parametrize("arguments", [["pods", "--pods", "8", "--jobs", "8"], ["pods", "--workers", "0"]])
def test_an_invalid_argument_ends_with_one_message(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert "Traceback" not in done.stderr


@pytest.mark.redis_server
def test_a_short_pod_benchmark_creates_all_pods_without_refusals() -> None:
    found = pods.run(pods.Options(pods=8, jobs=2, workers=1, rounds=1, seconds=60))
    assert found["share_one_job"] > 0
    assert found["requests"]["POST pods"] == 4 * 8
    assert found["refused"] == {}
