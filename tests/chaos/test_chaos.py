"""A short chaos run with a fixed seed. `make chaos` runs longer runs with any seed."""

from pathlib import Path

import pytest

from tests.chaos import plan
from tests.chaos.arena import Times
from tests.chaos.play import Options, Play

KINDS = tuple(kind for kind in plan.ONE_SERVER if kind != "rotate")
QUICK = Times(lease=3.0, deadline=2.25, renew=0.75, running_lease=4.0, resync=4.0)
SEED = 31
"""A seed that kills workers and API server, empties Redis, and lets leader and workers sleep through their leases."""


@pytest.mark.redis_server
@pytest.mark.timeout(300)
def test_no_job_is_lost_or_run_twice_under_faults(tmp_path: Path) -> None:
    options = Options(seed=SEED, faults=KINDS, seconds=8.0, every=1.5, times=QUICK, slack=60.0, calm=150.0)
    told: list[str] = []
    outcome = Play(options, tmp_path / "run", told.append).run()
    assert outcome.wrong == [], "\n".join(["", *outcome.log, *outcome.wrong, f"logs: {tmp_path}"])
    assert outcome.figures["looks"] > 5
    assert outcome.figures["pod_runs"] >= 5


@pytest.mark.redis_server
@pytest.mark.timeout(300)
def test_no_job_is_lost_or_run_twice_when_redis_fails_over(tmp_path: Path) -> None:
    kinds = ("sentinel:stale", "rotate:soft")
    options = Options(
        seed=22, sentinels=True, faults=kinds, seconds=4.0, every=2.0, times=QUICK, slack=60.0, calm=150.0
    )
    play = Play(options, tmp_path / "run", [].append)
    assert {str(fault).split()[0] for fault in play.plan.faults} == {*kinds}
    outcome = play.run()
    assert outcome.wrong == [], "\n".join(["", *outcome.log, *outcome.wrong, f"logs: {tmp_path}"])
    assert outcome.figures["pod_runs"] >= 3


@pytest.mark.unit
def test_plan_depends_on_its_seed_and_kinds_of_faults_only() -> None:
    def made(seed: int, kinds: tuple[str, ...] = KINDS) -> plan.Plan:
        return plan.make(seed, 60, kinds, lease=4, every=3)

    assert made(1) == made(1)
    assert made(1).jobs != made(2).jobs
    assert made(1).faults != made(2).faults
    assert made(1, ("flush",)).jobs == made(1).jobs
    assert {fault.kind for fault in made(1, ("kill:redis", "flush")).faults} == {"kill", "flush"}
    assert {fault.target for fault in made(1, ("kill:redis",)).faults} == {"redis"}


@pytest.mark.unit
def test_plan_with_an_unknown_fault_raises_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match="earthquake"):
        plan.make(1, 60, ("kill", "earthquake"), lease=4, every=3)
