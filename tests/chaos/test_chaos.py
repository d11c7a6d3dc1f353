"""A short run under fire, the same every time; `make chaos` runs longer ones with any seed."""

from pathlib import Path

import pytest

from tests.chaos import plan
from tests.chaos.arena import Times
from tests.chaos.play import Options, Play

QUICK = Times(lease=3.0, renew=0.75, running_lease=4.0, resync=4.0)
SEED = 31
"""Kills the workers and the API server, empties Redis, and lets leader and workers sleep through their leases."""


@pytest.mark.acceptance
@pytest.mark.redis_server
@pytest.mark.timeout(300)
def test_nothing_is_lost_and_nothing_doubled_under_fire(tmp_path: Path) -> None:
    options = Options(seed=SEED, seconds=8.0, every=1.5, times=QUICK, slack=60.0, calm=150.0)
    told: list[str] = []
    outcome = Play(options, tmp_path / "run", told.append).run()
    assert outcome.wrong == [], "\n".join(["", *outcome.log, *outcome.wrong, f"logs: {tmp_path}"])
    assert outcome.figures["looks"] > 5
    assert outcome.figures["pod_runs"] >= 5


def test_a_plan_is_the_same_for_a_seed_and_another_for_another() -> None:
    def made(seed: int, kinds: tuple[str, ...] = tuple(plan.FAULTS)) -> plan.Plan:
        return plan.make(seed, 60, kinds, lease=4, every=3)

    assert made(1) == made(1)
    assert made(1).jobs != made(2).jobs
    assert made(1).faults != made(2).faults
    assert made(1, ("flush",)).jobs == made(1).jobs
    assert {fault.kind for fault in made(1, ("kill:redis", "flush")).faults} == {"kill", "flush"}
    assert {fault.target for fault in made(1, ("kill:redis",)).faults} == {"redis"}


def test_a_fault_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match="earthquake"):
        plan.make(1, 60, ("kill", "earthquake"), lease=4, every=3)
