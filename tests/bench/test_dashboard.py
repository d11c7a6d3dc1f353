"""The benchmark of the dashboard: its made-up cluster, and what is measured on it."""

from bench.benchmarks.dashboard import benchmark, scene
from bench.benchmarks.dashboard.benchmark import Options
from bench.benchmarks.dashboard.scene import Scene


def test_a_made_up_cluster_changes_as_many_jobs_as_was_asked_for() -> None:
    cluster = Scene(jobs=100, queues=10, changes=5)
    before = cluster.newest()
    cluster.step()
    after = cluster.newest()
    assert after.number == before.number + 1
    changed = sum(one is not other for one, other in zip(before.jobs, after.jobs, strict=True))
    assert 1 <= changed <= 5
    assert len(after.queues) == 10


def test_only_what_changes_on_a_page_is_sent() -> None:
    cluster = Scene(jobs=100, queues=10, changes=1)
    for path in benchmark.PAGES:
        first, other, messages = benchmark.made(cluster, path, 3)
        assert other > 0
        assert first > 0
        assert max(map(len, messages)) < 5_000


def test_the_figures_of_pages_are_multiples() -> None:
    figures = benchmark.of_pages(Options(jobs=200, queues=20, changes=2, rounds=2))
    assert figures["page_growth"] > 0
    assert 0 < figures["bytes_of_whole_list"] < 1
    assert scene.visitor().may_act is False
