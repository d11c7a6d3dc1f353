"""The admissions that a rebuild takes back when there is not enough room for all of them."""

from typing import Any

import pytest

from coordinator.routing import revoke
from crds.keys import JobKey
from queues.values import QueueSpec, Reservation


def key(name: str) -> JobKey:
    return JobKey("team", name, name)


def admitted(name: str, epoch: int, pick: int, cpu: int = 1, queue: str = "a", port: int = 0) -> Reservation:
    charge = {"cpu": cpu, "jobs": 1}
    return Reservation(key=key(name), queue=queue, attempt=1, epoch=epoch, pick=pick, charge=charge, port=port)


def back(charged: list[Reservation], pool: Any = None, firm: str = "", **queues: QueueSpec) -> str:
    found = revoke.excess(charged, {key(name) for name in firm}, queues, pool)
    return "".join(sorted(each.name for each in found))


THREE = [admitted("x", 1, 1), admitted("y", 1, 2), admitted("z", 2, 1)]


def one(name: str = "a", **fields: Any) -> QueueSpec:
    return QueueSpec(name=name, **fields)


def test_admissions_that_fit_stay() -> None:
    assert back(THREE, {"cpu": 3}, a=one(quota={"jobs": 3})) == ""
    assert back(THREE) == ""


@pytest.mark.parametrize(("most", "expected"), [(2, "z"), (1, "yz"), (0, "xyz")])
def test_the_newest_admission_is_taken_back_first(most: int, expected: str) -> None:
    assert back(THREE, a=one(quota={"jobs": most})) == expected
    assert back(THREE, {"cpu": most}) == expected


def test_other_admissions_make_room_for_firm_ones() -> None:
    assert back(THREE, firm="z", a=one(quota={"jobs": 1})) == "xy"
    assert back(THREE, firm="xyz", a=one(quota={"jobs": 1})) == ""


def test_only_admissions_that_use_the_exceeded_resource_are_taken_back() -> None:
    charged = [admitted("x", 1, 1, cpu=4), admitted("y", 1, 2, cpu=0), admitted("z", 1, 3, cpu=2)]
    assert back(charged, {"cpu": 4}) == "z"
    assert back([*charged, admitted("w", 9, 9, queue="b")], a=one(quota={"cpu": 4}), b=one("b")) == "z"


def test_a_queue_keeps_admissions_within_what_it_may_borrow() -> None:
    lender = one("b", cohort="c", quota={"jobs": 2})
    assert back(THREE, a=one(cohort="c", quota={"jobs": 1}), b=lender) == ""
    assert back(THREE, a=one(cohort="c", quota={"jobs": 1}, borrowing={"jobs": 1}), b=lender) == "z"
    taken = [*THREE, admitted("v", 1, 3, queue="b")]
    assert back(taken, a=one(cohort="c", quota={"jobs": 1}), b=lender) == "z"


def test_the_newer_of_two_admissions_with_one_port_is_taken_back() -> None:
    charged = [admitted("x", 1, 1, port=7), admitted("y", 2, 1, port=7), admitted("z", 2, 2, port=8)]
    assert back(charged) == "y"
    assert back(charged, firm="y") == "x"


def test_the_growths_of_the_newest_admissions_are_taken_back_until_the_rest_fits() -> None:
    large = [admitted(name, 1, pick, cpu=4) for pick, name in enumerate("xyz")]
    smaller = {key(name): admitted(name, 1, pick, cpu=1) for pick, name in enumerate("xyz")}

    def shrunk(pool: int, **changes: Any) -> str:
        found = revoke.smaller_charges(large, smaller, changes, {"cpu": pool})
        assert all(each == smaller[name] for name, each in found.items())
        return "".join(sorted(each.name for each in found))

    assert shrunk(12) == ""
    assert shrunk(11) == "z"
    assert shrunk(7) == "yz"
    assert shrunk(12, a=one(quota={"jobs": 1})) == "", "a growth does not count as a job"
