"""Comparison of a demand with a limit: results and cost."""

from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crds.resources import amounts
from crds.resources.amounts import OTHERS

NAMES = ("jobs", "cpu", "memory", "gpu", "made-up")
AMOUNTS = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 6))
LIMITS = st.dictionaries(st.sampled_from((*NAMES, OTHERS)), st.integers(0, 6))


@given(AMOUNTS, AMOUNTS, LIMITS)
def test_demand_fits_if_each_of_its_resources_fits(
    demand: dict[str, int], used: dict[str, int], limit: dict[str, int]
) -> None:
    def allowed(name: str) -> bool:
        others = limit.get(OTHERS) if name != "jobs" else None
        most = limit.get(name, others)
        return demand[name] == 0 or most is None or used.get(name, 0) + demand[name] <= most

    assert amounts.fits(demand, used, limit) is all(map(allowed, demand))


@given(st.lists(st.tuples(AMOUNTS, st.integers(-2, 3))))
def test_increase_adds_multiples_to_a_total(parts: list[tuple[dict[str, int], int]]) -> None:
    total: dict[str, int] = {}
    for part, times in parts:
        amounts.increase(total, part, times)
    assert total == {
        name: sum(part.get(name, 0) * times for part, times in parts) for name in {n for part, _ in parts for n in part}
    }


class Counted(Mapping[str, int]):
    """Amounts that count their lookups."""

    def __init__(self, content: dict[str, int]) -> None:
        self.content = content
        self.asked = 0

    def __getitem__(self, name: str) -> int:
        self.asked += 1
        return self.content[name]

    def __iter__(self) -> Iterator[str]:
        for name in self.content:
            self.asked += 1
            yield name

    def __len__(self) -> int:
        return len(self.content)


@pytest.mark.parametrize("others", [{}, {OTHERS: 0}])
def test_cost_of_fits_is_independent_of_the_size_of_the_limit(others: dict[str, int]) -> None:
    limit = Counted({f"example.org/{number}": 0 for number in range(10_000)} | {"cpu": 8} | others)
    used = Counted({f"example.org/{number}": 5 for number in range(10_000)})
    assert amounts.fits({"cpu": 8, "jobs": 1}, used, limit)
    assert not amounts.fits({"cpu": 9, "jobs": 1}, used, limit)
    assert limit.asked + used.asked < 20


def test_others_do_not_limit_jobs_and_devices_of_claims() -> None:
    devices = "gpu.example.com.deviceclass.resource.k8s.io/devices"
    assert amounts.fits({"jobs": 1, devices: 8}, {}, {"cpu": 1, OTHERS: 0})
    assert not amounts.fits({"example.com/gpu": 8}, {}, {"cpu": 1, OTHERS: 0})
    assert not amounts.fits({devices: 8}, {devices: 1}, {devices: 8, OTHERS: 0})
    assert amounts.limit_for({OTHERS: 0}, devices) is None
