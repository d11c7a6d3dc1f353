"""The simulation of autoscaling: its accounts, and the goals of the production plan against no autoscaling."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.benchmarks import autoscale
from bench.benchmarks.autoscale import Options
from bench.cli import main
from bench.errors import BenchError
from bench.support.arena import GPU
from bench.support.autoscale import large_plan, scenario
from bench.support.autoscale.policies import Kueue, Off, On, PlainLoop
from bench.support.autoscale.scenario import LEAST, WANTED
from bench.support.autoscale.simulation import Simulation
from bench.support.autoscale.trainer import GRACE_SECONDS, STOP_SECONDS, Trainer
from bench.support.scenarios import Job, Scenario
from crds.keys import JobKey
from queues.values import Entry, QueueSpec

HEADER = "name,cpu_milli,memory_mib,num_gpu,qos,creation_time,deletion_time\n"


def rigid(number: int, at: float, gpus: int, seconds: float, queue: str = "a") -> Job:
    key = JobKey(queue, f"rigid-{number}", f"uid-{number}")
    return Job(Entry(key=key, queue=queue, submitted=at, demand={"jobs": 1, GPU: gpus}), seconds)


def elastic(number: int, at: float, seconds: float, queue: str = "a") -> Job:
    key = JobKey(queue, f"elastic-{number}", f"uid-elastic-{number}")
    demand = {"jobs": 1, GPU: LEAST}
    return Job(Entry(key=key, queue=queue, submitted=at, demand=demand, size=1, unit={GPU: 1}, most=1), seconds)


def small(*jobs: Job) -> Scenario:
    """Return a pool of 8, and a last job long after the others."""
    queues = [QueueSpec(name="a"), QueueSpec(name="b")]
    return Scenario(queues, {GPU: 8}, [*jobs, rigid(99, 1_000.0, 1, 1.0)])


def test_elastic_job_takes_as_long_as_its_work_does() -> None:
    off = Simulation(small(elastic(0, 0.0, 100.0)), Off(), 30.0).run()
    assert off["elastic_trained_worker_hours"] * 3600 == pytest.approx(100.0 * WANTED)
    assert off["utilisation_percent"] == pytest.approx(100 * 2 * 100 / 8_000)
    assert (off["resizes_per_job_hour"], off["work_lost_percent"]) == (0, 0)


def test_growth_into_idle_room_is_counted_with_what_it_costs() -> None:
    on = Simulation(small(elastic(0, 0.0, 900.0)), On(), 30.0).run()
    assert on["elastic_trained_worker_hours"] * 3600 == pytest.approx(1800.0)
    assert on["work_lost_percent"] == pytest.approx(100 * 8 * STOP_SECONDS / (1800 + 8 * STOP_SECONDS))
    off = Simulation(small(elastic(0, 0.0, 900.0)), Off(), 30.0).run()
    assert on["idle_usable_percent"] < off["idle_usable_percent"] == pytest.approx(100 * 900 * 6 / (8_000 - 1800))


def test_rigid_job_waits_one_grace_for_idle_growth() -> None:
    scene = small(elastic(0, 0.0, 9_000.0), rigid(1, 200.0, 6, 10.0, "b"))
    for policy, wait in ((On(), GRACE_SECONDS), (Off(), 0.0)):
        assert Simulation(scene, policy, 30.0).run()["rigid_wait_p99_s"] == wait


def test_kueue_never_grows_and_the_plain_loop_takes_everything_at_once() -> None:
    """The elastic job begins with 1 of its 2 workers."""
    jobs = rigid(0, 0.0, 7, 300.0), elastic(0, 1.0, 9_000.0)
    resized = {
        type(policy).__name__: Simulation(small(*jobs), policy, 30.0).run()["resizes_per_job_hour"] > 0
        for policy in (Kueue(), Off(), On(), PlainLoop())
    }
    assert resized == {"Kueue": False, "Off": True, "On": True, "PlainLoop": True}


def test_goals_hold_for_the_production_plan() -> None:
    options = Options(jobs=300, against=False)
    found = autoscale.read(options)
    off, on = (autoscale.play(found, policy, options) for policy in (Off(), On()))
    assert on["utilisation_percent"] > off["utilisation_percent"] + 1
    assert on["idle_usable_percent"] < 5 < off["idle_usable_percent"]
    assert on["rigid_wait_p99_s"] <= off["rigid_wait_p99_s"] + GRACE_SECONDS
    assert on["work_lost_percent"] < 2


def test_standing_still_is_counted_once() -> None:
    trainer = Trainer(elastic(0, 0.0, 1.0).entry, 100.0, 2, 0.0, running=2)
    trainer.run(4, 10.0)
    trainer.run(4, 10.0 + STOP_SECONDS / 2)
    assert trainer.lost == pytest.approx(4 * STOP_SECONDS * 1.5)
    assert trainer.ends_at == pytest.approx(10.0 + STOP_SECONDS * 1.5 + 80 / 4)


def test_trace_makes_every_third_job_with_gpus_elastic(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "".join(f"t{n},1000,1024,{n % 2},LS,{n},{n + 100}\n" for n in range(20)))
    found = scenario.trace(path, 0.6)
    assert len(found.jobs) == 18
    assert {bool(job.entry.unit) for job in found.jobs if not job.entry.demand.get(GPU)} == {False}
    assert sum(bool(job.entry.unit) for job in found.jobs) == 3
    path.write_text(HEADER)
    with pytest.raises(BenchError):
        scenario.trace(path, 0.6)


@pytest.mark.parametrize("name", sorted(large_plan.CASES))
def test_large_plans_do_what_their_names_say(name: str) -> None:
    assert large_plan.milliseconds(large_plan.CASES[name], 4) > 0
    resized = {resize.reason for resize in large_plan.planned(large_plan.CASES[name], 4).resizes}
    expected = {"growth": {"Idle"}, "giving": {"GiveBack"}}.get(name.split("_", maxsplit=1)[0], set())
    assert resized == expected


@pytest.mark.servers
def test_command_prints_both_sides_and_the_time_of_a_plan() -> None:
    result = CliRunner().invoke(main, ["autoscale", "--jobs", "20", "--alone", "--json"])
    figures = json.loads(result.output)
    keys = {"utilisation_percent", "idle_usable_percent", "rigid_wait_p50_s", "rigid_wait_p99_s"}
    keys |= {"resizes_per_job_hour", "work_lost_percent"}
    assert keys <= figures["off"].keys() & figures["on"].keys()
    assert figures["plan_ms_1000_jobs"] == max(figures["plan_ms"].values())
