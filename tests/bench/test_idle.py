"""The benchmark of an idle cluster."""

import pytest

from bench.benchmarks import idle
from bench.benchmarks.idle import Options


def test_the_window_in_which_the_whole_cluster_used_least_counts() -> None:
    windows = [{"node": 0.01, "redis": 0.03}, {"node": 0.02, "redis": 0.01}, {"node": 0.0, "redis": 0.2}]
    assert idle.figures(windows) == {"share_of_a_core": 0.03, "shares_by_process": {"node": 0.02, "redis": 0.01}}


@pytest.mark.stack
@pytest.mark.redis_server
def test_every_process_of_a_cluster_is_measured() -> None:
    found = idle.run(Options(windows=1, seconds=1.0))
    assert found["shares_by_process"].keys() == {
        "supervisor", "apiserver", "node", "redis", "coordinator", "worker-0", "worker-1", "recorder"
    }  # fmt: skip
    assert 0 <= found["share_of_a_core"] < 2
