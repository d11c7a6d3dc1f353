"""The benchmark of an idle cluster."""

import pytest

from bench.benchmarks import idle
from bench.benchmarks.idle import Options


def test_the_window_in_which_the_whole_cluster_used_least_counts() -> None:
    windows = [{"node": 0.01, "redis": 0.03}, {"node": 0.02, "redis": 0.01}, {"node": 0.0, "redis": 0.2}]
    found = idle.figures(windows, {"worker-0": 1.5, "worker-1": 0.5, "recorder": 0.5, "node": 9.0})
    assert found == {
        "share_of_a_core": 0.03,
        "shares_by_process": {"node": 0.02, "redis": 0.01},
        "recorder_cpu_of_workers": 0.25,
    }


@pytest.mark.stack
@pytest.mark.redis_server
def test_every_process_of_a_cluster_is_measured() -> None:
    found = idle.run(Options(jobs=1, windows=1, seconds=1.0))
    assert found["shares_by_process"].keys() == {
        "supervisor", "apiserver", "node", "redis", "coordinator", "worker-0", "worker-1", "recorder"
    }  # fmt: skip
    assert 0 <= found["share_of_a_core"] < 2
    assert 0 < found["recorder_cpu_of_workers"] < 10
