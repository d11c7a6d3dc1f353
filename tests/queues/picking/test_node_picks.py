"""Picks where nodes count: gangs are picked only with nodes for all their pods, and kept room is nodes."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crds.resources.amounts import PODS
from queues.store import IdleGrowth
from tests.support.queues.builders import GPU, START, entry
from tests.support.queues.node_cluster import NodeCluster


def half_full() -> NodeCluster:
    """Return two nodes of 8 GPUs with 4 free on each."""
    cluster = NodeCluster([8, 8])
    for number in range(2):
        cluster.submit(f"whole-{number}", "a", 1, 5, length=1_000)
    cluster.second()
    assert cluster.free == [3, 3]
    return cluster


def test_a_gang_without_nodes_waits_and_others_go() -> None:
    cluster = half_full()
    large = cluster.submit("large", "a", 1, 6)
    small = cluster.submit("small", "b", 2, 3)
    cluster.second()
    assert (cluster.admitted(large), cluster.admitted(small)) == (False, True)


def test_jobs_of_one_demand_are_told_apart_by_their_gangs() -> None:
    cluster = half_full()
    whole = cluster.submit("whole", "a", 1, 6)
    parts = cluster.submit("parts", "a", 2, 3)
    cluster.store.put([entry("whole", "a", START, gpu=6, pods=2)])
    cluster.second()
    assert (cluster.admitted(whole), cluster.admitted(parts)) == (False, True)


@pytest.mark.parametrize("unruly", [False, True])
def test_a_gang_of_whole_nodes_begins_under_an_endless_stream_of_small_jobs(unruly: bool) -> None:
    cluster = NodeCluster([8] * 4, unruly=unruly)
    made = 0
    for number in range(32):
        cluster.submit(f"first-{number}", "b", 1, 1, length=10.0 + cluster.random.randrange(100))
    cluster.second()
    large = cluster.submit("large", "a", 2, 8, length=60.0)
    for _ in range(600):
        for _ in range(4):
            made += 1
            cluster.submit(f"stream-{made}", "b", 1, 1, length=10.0 + cluster.random.randrange(100))
        cluster.second()
        if cluster.admitted(large):
            break
    assert cluster.admitted(large)
    most = 600 if unruly else 60 + 110 + 30  # its patience, the longest run, and some
    assert cluster.now - START < most


def test_only_the_kept_nodes_are_kept() -> None:
    cluster = NodeCluster([8] * 4)
    for number in range(4):
        cluster.submit(f"whole-{number}", "b", 1, 5, length=[50.0, 1_000.0, 60.0, 1_000.0][number])
        cluster.submit(f"other-{number}", "b", 1, 2, length=1.0)
    cluster.second()
    cluster.second()
    large = cluster.submit("large", "a", 2, 8)
    for _ in range(40):
        cluster.submit(f"b-{cluster.now}", "b", 1, 1, length=1.0)
        cluster.second()
    assert cluster.places.kept.bit_count() == 2
    beside = cluster.submit("beside", "b", 1, 3, length=1_000.0)
    cluster.second()
    assert cluster.admitted(beside)
    for _ in range(60):
        cluster.second()
    assert cluster.admitted(large)


JOBS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 4), st.integers(1, 8), st.integers(1, 30)), max_size=40)


@settings(deadline=None, max_examples=60)
@given(jobs=JOBS, sizes=st.lists(st.sampled_from([4, 8]), min_size=1, max_size=4), unruly=st.booleans())
def test_any_jobs_never_exceed_a_node_and_all_that_fit_end(
    jobs: list[tuple[str, int, int, int]], sizes: list[int], unruly: bool
) -> None:
    cluster = NodeCluster(sizes, unruly=unruly)
    fitting = set()
    for number, (queue, pods, gpu, length) in enumerate(jobs):
        key = cluster.submit(f"job-{number}", queue, pods, gpu, float(length))
        if sum(size // gpu for size in sizes) >= pods:
            fitting.add(key)
        cluster.second()
    for _ in range(sum(length for *_, length in jobs) + 200 * len(jobs)):
        if not (cluster.ends or any(view.waiting for view in cluster.store.snapshot(0).queues)):
            break
        cluster.second()
        waiting = {each.entry.key for view in cluster.store.snapshot(100).queues for each in view.heads}
        if not waiting & fitting and not cluster.ends:
            break
    waiting = {each.entry.key for view in cluster.store.snapshot(100).queues for each in view.heads}
    assert not waiting & fitting


def test_idle_growth_has_its_places_before_its_pods_come() -> None:
    cluster = NodeCluster([4, 4])
    key = cluster.submit("grows", "a", 1, 3)
    cluster.second()
    growth = IdleGrowth(key=key, attempt=1, grown=0, workers=1, charge={GPU: 3, PODS: 1})
    assert cluster.rounds.grow_idle([growth, replace(growth, attempt=2)]) == ["", "reservation"]
    assert cluster.free == [1, 1]
