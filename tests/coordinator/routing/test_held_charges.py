"""What the store holds for an admitted job, compared with the status of the job."""

from dataclasses import replace
from typing import Any

import pytest

from coordinator.cache.worker_counts import WorkerCounts
from coordinator.routing import held_charges
from queues.store import LoweredCharge
from queues.values import Reservation
from tests.support.coordinator.builders import KEY, admission, pod

WRITTEN = admission(charge={"cpu": 3000, "pods": 3, "jobs": 1}, attempt=2, workers=3, grown=1, idle=1)


def held(**changes: Any) -> Reservation:
    fields = {"attempt": 2, "charge": WRITTEN.charge, "size": 3, "grown": 1}
    return Reservation(key=KEY, queue="a", epoch=3, **{**fields, **changes})


def workers(count: int, cpu: int = 1000, **changes: Any) -> list[Any]:
    demand = {"cpu": cpu, "pods": 1}
    return [pod(name=f"train-worker-{index}", demand=demand, **changes) for index in range(count)]


MORE = {"cpu": 5000, "pods": 5, "jobs": 1}
LOWERED = LoweredCharge(key=KEY, attempt=2, grown=1, size=3, charge=WRITTEN.charge)


@pytest.mark.parametrize(
    ("reservation", "short"),
    [
        (None, True),
        (held(), False),
        (held(attempt=1), True),
        (held(attempt=3, charge={}), False),
        (held(grown=0), True),
        (held(grown=2, charge=MORE), False),
        (held(charge=MORE), False),
        (held(charge={"cpu": 3000, "pods": 2, "jobs": 1}), True),
        (held(charge={"cpu": 3000, "jobs": 1}), True),
        (held(idle=2), False),
        (held(idle=0), False),
        (held(grown=2, idle=0), False),
    ],
)
def test_a_store_that_holds_less_than_the_status_says_has_lost_data(
    reservation: Reservation | None, short: bool
) -> None:
    assert held_charges.is_short(WRITTEN, reservation) == short


def test_a_payment_that_no_worker_has_written_is_like_a_growth_that_none_has_written() -> None:
    assert held_charges.is_unwritten_growth(WRITTEN, held(grown=2, idle=0))
    assert held_charges.find_surplus(WRITTEN, held(grown=2, idle=0)) is None


@pytest.mark.parametrize(
    ("reservation", "lowered"),
    [
        (held(charge=MORE), LOWERED),
        (held(charge={**WRITTEN.charge, "memory": 1}), LOWERED),
        (held(), None),
        (held(charge=MORE, grown=2), None),
        (held(charge=MORE, attempt=3), None),
        (None, None),
    ],
)
def test_what_the_store_holds_beyond_the_status_is_freed_unless_a_worker_has_yet_to_write_it(
    reservation: Reservation | None, lowered: LoweredCharge | None
) -> None:
    assert held_charges.find_surplus(WRITTEN, reservation) == lowered


@pytest.mark.parametrize(
    ("pods", "needed"),
    [
        (workers(3), False),
        (workers(4), True),
        (workers(3, cpu=1001), True),
        ([*workers(3), pod(name="train-worker-3", occupies=False, demand={"cpu": 1000, "pods": 1})], False),
        (workers(4, cpu=100), True),  # the same holds if the other tasks of the job have no pods now
        ([pod(demand={"memory": 1 << 40})], False),  # no memory is freed
    ],
)
def test_a_charge_is_needed_while_pods_take_more_than_the_rest(pods: list[Any], needed: bool) -> None:
    assert held_charges.is_needed(held(charge=MORE), LOWERED, pods) == needed


@pytest.mark.parametrize(("occupying", "size"), [(0, 1), (1, 1), (2, 3), (3, 3), (4, 5), (9, 5)])
def test_workers_without_pods_are_left_out_down_to_the_least_number(occupying: int, size: int) -> None:
    least = {"cpu": 1000, "pods": 1, "jobs": 1}
    counts = WorkerCounts(1, 5, 2, least, {"cpu": 1000, "pods": 1})
    smaller = held_charges.without_workers(held(charge=MORE, size=5), counts, occupying)
    assert (smaller.size, smaller.charge) == (size, {"cpu": size * 1000, "pods": size, "jobs": 1})


@pytest.mark.parametrize(
    ("idle", "gained", "paid"),
    [
        pytest.param(0, 2, 70, id="both paid"),
        pytest.param(0, 4, 35, id="half of the growth"),
        pytest.param(1, 2, 35, id="one of them idle growth"),
        pytest.param(3, 2, 0, id="idle growth alone"),
        pytest.param(0, 1, 70, id="more than the growth"),
        pytest.param(0, 0, 0, id="no growth"),
    ],
)
def test_payment_of_a_growth_comes_back_by_worker_and_idle_growth_goes_first(idle: int, gained: int, paid: int) -> None:
    charged = replace(held(charge=MORE, size=5, idle=idle), paid=70, gained=gained)
    assert held_charges.freed_payment(charged, LOWERED) == paid


def test_a_charge_without_its_last_workers_has_less_idle_growth() -> None:
    counts = WorkerCounts(1, 3, 1, {"cpu": 1000, "pods": 1, "jobs": 1}, {"cpu": 1000, "pods": 1})
    charge = held(charge=MORE, size=5, idle=3)
    assert held_charges.without_workers(charge, counts, 3).idle == 1
    assert held_charges.without_workers(charge, counts, 1).idle == 0
