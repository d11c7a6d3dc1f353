"""The kinds of pods that are typical of a cluster."""

from random import Random

import pytest

from queues.placement.typical_pods import Demand, TypicalPods, typical_of
from tests.support.queues.clusters import shape

GPU = "example.org/gpu"


def demand(gpus: int, cpu: int) -> Demand:
    return shape(**{name: amount for name, amount in {GPU: gpus, "cpu": cpu}.items() if amount}).demand


def kinds(typical: TypicalPods | None) -> list[tuple[int, dict[str, int]]]:
    assert typical is not None
    return [
        (weight, {name: amount for name, amount in zip(typical.names, needs, strict=True) if name != "pods"})
        for weight, needs in typical.kinds
    ]


def test_the_commonest_of_the_pods_that_ask_for_nearly_the_same_stands_for_all() -> None:
    found = typical_of({demand(1, 4_000): 20, demand(1, 3_900): 28, demand(8, 64_000): 16, demand(0, 9_000): 99})
    assert kinds(found) == [(48, {GPU: 1, "cpu": 3_900}), (16, {GPU: 8, "cpu": 64_000})]


@pytest.mark.parametrize("pods", [{}, {demand(1, 4): 9}, {demand(1, 5): 9, demand(1, 4): 9, demand(0, 64): 9}])
def test_fewer_than_two_kinds_decide_nothing(pods: dict[Demand, int]) -> None:
    assert typical_of(pods) is None


def test_where_no_pod_asks_for_gpus_cpu_is_scarce() -> None:
    found = typical_of({demand(0, 1): 3, demand(0, 64): 1})
    assert found is not None
    assert [found.names[at] for at in found.scarce] == ["cpu"]
    assert kinds(found) == [(48, {"cpu": 1}), (16, {"cpu": 64})]


def test_pods_of_any_variety_are_few_kinds_the_same_in_any_order_and_with_a_job_more() -> None:
    chance = Random(1)
    pods = [(demand(chance.choice((1, 2, 4, 8)), chance.randint(1, 10**6)), 2 * number) for number in range(300)]
    found = typical_of(dict(pods))
    assert found is not None
    assert {needs[found.names.index(GPU)] for _, needs in found.kinds} == {1, 2, 4, 8}
    chance.shuffle(pods)
    assert typical_of(dict(pods)) == found
    assert typical_of({**dict(pods), pods[0][0]: pods[0][1] + 1}) == found
    most = typical_of({shape(**{GPU: 1 << number}).demand: 1 for number in range(40)})
    assert most is not None
    assert len(most.kinds) == 32
