"""Simulated faults: a scenario reaches the same end, whichever process is killed, stopped or cut off at any call.

`python -m tests.faults` runs more schedules, and replays a single schedule.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

import pytest

from tests.faults import backends, hunt
from tests.faults.mutations import noticed
from tests.faults.places import MemoryPlace
from tests.faults.scenarios.catalog import SCENARIOS
from tests.faults.schedules import Backend, Fault, Schedule
from tests.faults.world import PlaceMaker
from tests.support import redis_server

SEED = 3
STRIDE = 397
"""The distance between the selected schedules. The distance is a prime, so that every fault is tried at some calls."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def _check(schedules: Iterable[Schedule], place: PlaceMaker = MemoryPlace) -> None:
    _, failures = hunt.search(schedules, place, most=3)
    assert not failures, "\n".join(map(str, failures))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_scenario_with_one_fault_at_any_call_reaches_its_end(scenario: str) -> None:
    # This is a sample: every fault at some of the calls.
    number = sorted(SCENARIOS).index(scenario)
    _check(islice(hunt.one_each(scenario), number % STRIDE, None, STRIDE))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(4))
def test_scenarios_with_several_faults_in_shuffled_order_reach_their_end(part: int) -> None:
    _check(hunt.shuffled(16, SEED + part))


@pytest.mark.timeout(600)
def test_scenarios_with_faults_reach_their_end_with_the_redis_scripts() -> None:
    backend: Backend = "redis" if redis_server.find_program() else "fakeredis"
    with backends.places(backend) as place:
        some = [islice(hunt.one_each(name, backend=backend), 7, None, 1999) for name in sorted(SCENARIOS)]
        _check([schedule for each in some for schedule in each], place)
        _check(hunt.shuffled(8, SEED, backend=backend), place)


@pytest.mark.timeout(600)
def test_worker_that_has_not_heard_of_a_request_removes_the_named_workers() -> None:
    _check(islice(hunt.one_each("shrinknamed", ["lag"]), 0, None, 9))


@pytest.mark.parametrize("text", ["drain/memory!lag@66,user@66", "growgang/memory!lag@41"])
def test_schedule_that_was_broken_once_holds(text: str) -> None:
    _check([Schedule.parse(text)])


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "mutation",
    [
        "workers do not ask for the fence",
        "commit does not mark the key as work",
        "charges are freed while pods occupy",
        "leases that end are not noticed",
        "gates are opened too early",
        "groups go before their pods",
        "pods are believed whatever queue they name",
        "pods count for what their templates ask for",
        "what happened is counted after its pods are gone",
        "workers are made before they are granted",
        "a charge is lowered while victims occupy",
        "memory is not charged before a pod has it",
        "a declined growth is kept",
        "victims count as failures",
        "a growth is as old as its job",
        "a surplus pod vacates the job",
        "gates open one by one",
        "jobs shrink for one that cannot fit",
        "jobs grow again at once",
        "idle growth pays credit",
        "idle growth ignores the reservation",
        "a job hangs by wall clock over a flush",
        "the token of another job is taken",
    ],
)
def test_mutation_of_the_product_is_noticed(mutation: str) -> None:
    _, failure = noticed(mutation, 150)
    assert failure is not None


@pytest.mark.parametrize("order", [0, 7])
def test_schedule_runs_the_same_way_every_time(order: int) -> None:
    schedule = Schedule("restart", seed=order, faults=(Fault(20, "yield"), Fault(31, "kill>"), Fault(60, "flush")))
    first, second = (hunt.run(schedule, tracing=True) for _ in range(2))
    assert _shown(first.trace) == _shown(second.trace)


def _shown(trace: list[str]) -> list[str]:
    """Return the trace without renewal times of the Lease, which come from the machine's clock."""
    return [line for line in trace if "renewTime" not in line]


@pytest.mark.unit
def test_schedule_is_parsed_from_its_text() -> None:
    schedule = Schedule("quota", "redis", 5, (Fault(3, "kill<"), Fault(9, "flush")))
    assert Schedule.parse(str(schedule)) == schedule
    assert Schedule.parse("life") == Schedule("life")
    for wrong in ("", "quota/etcd", "quota!kill", "quota!kill@3", "quota!kill>@x"):
        with pytest.raises(ValueError, match=r"not a|none of"):
            Schedule.parse(wrong)


@pytest.mark.unit
def test_smaller_reduces_a_failing_schedule_to_the_faults_it_needs() -> None:
    schedule = replace(Schedule.parse("life~9!kill>@3,flush@5,lag@7"), scenario="life")
    small = hunt.smaller(schedule, lambda each: Fault(5, "flush") in each.faults)
    assert small == Schedule("life", faults=(Fault(5, "flush"),))
