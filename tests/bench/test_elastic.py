"""What `bench elastic` reads from the output of the training and from pods, and the job that the benchmark submits."""

import itertools
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench.benchmarks import elastic
from bench.cli import main
from bench.support.elastic import training_record, watched
from bench.support.elastic.training_job import LARGEST, TrainingJob
from bench.support.elastic.training_record import Step
from crds import labels
from crds.torchjob import torchjob

GROWTH = """\
launch w-0 time 1
launch w-1 time 1
start w-0 rank 0 world 2 done 0 time 2
start w-1 rank 1 world 2 done 0 time 2
step 1 world 2 loss 2.0 time 3
step 2 world 2 loss 1.5 time 4
launch w-0 time 11
launch w-2 time 11.5
launch w-1 time 12
start w-0 rank 1 world 3 done 2 time 13
start w-1 rank 0 world 3 done 2 time 13
start w-2 rank 2 world 3 done 2 time 13
step 3 world 3 loss 1.0 time 14
"""
KILL_OF_RANK_0 = """\
launch w-0 time 21
start w-0 rank 0 world 2 done 0 time 22
step 3 world 3 loss 1.25 time 23
launch w-0 time 24
launch w-1 time 24
start w-1 rank 0 world 3 done 2 time 25
"""


def test_a_growth_is_over_at_the_first_step_of_a_world_that_began_after_the_request() -> None:
    lines = training_record.parse(GROWTH)
    assert training_record.first_step(lines, 10, 3) == Step(3, 3, 1.0, 14)
    assert training_record.first_step(lines, 3.5, 2) is None  # step 2 belongs to the earlier world
    assert training_record.restarts(lines, 10) == 1
    assert training_record.steps_lost(lines, 10) == 0


def test_every_launch_counts_and_every_step_that_is_done_again() -> None:
    lines = training_record.parse(GROWTH + KILL_OF_RANK_0)
    assert training_record.restarts(lines, 20) == 2  # worker 0
    assert training_record.steps_lost(lines, 20) == 3 + 1


def test_a_line_that_is_still_written_does_not_count() -> None:
    assert training_record.parse("step 1 world 2 loss 2.0 time 3\nstep 2 wor") == [Step(1, 2, 2.0, 3)]


def test_the_loss_of_a_step_is_the_last_one_and_is_compared_over_the_last_common_steps() -> None:
    lines = training_record.parse(GROWTH + KILL_OF_RANK_0)
    assert training_record.losses(lines) == {1: 2.0, 2: 1.5, 3: 1.25}
    undisturbed = {1: 9.0, 2: 1.5, 3: 1.0, 4: 0.5}
    assert training_record.loss_gap({1: 2.0, 2: 1.5, 3: 1.25}, undisturbed, steps=2) == pytest.approx(10.0)


def pod(phase: str, cpu: str, uid: str = "u") -> dict[str, Any]:
    return {
        "metadata": {"labels": {labels.QUEUE: "q", labels.JOB_UID: uid}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": phase},
    }


def test_pods_occupy_their_queue_until_they_have_ended() -> None:
    pods = [
        watched.occupying_pod(pod(phase, "500m", uid))
        for phase, uid in (("Running", "a"), ("Pending", "a"), ("", "b"), ("Succeeded", "c"), ("Failed", "d"))
    ]
    used = watched.usage(pods, "q")
    assert used == {"cpu": 1500, "pods": 3, "jobs": 2}
    assert watched.usage(pods, "other") == {"jobs": 0}
    assert watched.most_over(used, {"cpu": 1500, "pods": 2, "memory": 0}) == 1


@pytest.mark.parametrize(
    ("change", "counts"),
    [({"phase": "Running"}, True), ({"queue": {"position": 3}}, False), ({"scaling": {"to": 3}}, True)],
)
def test_only_writes_of_workers_count(change: dict[str, Any], counts: bool) -> None:
    spec = {"torchTaskSpecs": {"Worker": {"numTasks": 4}}}
    before, after = (watched.job_state({"spec": spec, "status": status}) for status in ({"phase": ""}, change))
    changed = watched.job_state({"spec": spec, "status": {"phase": "", **change}})
    assert (changed.status != before.status) is counts
    assert (after.wanted, after.is_scaling) == (4, "scaling" in change)


def test_the_quota_is_exactly_what_the_job_is_charged_at_its_largest_size(tmp_path: Path) -> None:
    job = TrainingJob(tmp_path, "InPlaceRestart", 0.1, 10)
    stored = {"namespace": "default", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    manifest = job.manifest()
    parsed = torchjob.parse({**manifest, "metadata": {**manifest["metadata"], **stored}})
    assert parsed.spec.torch_elastic_policy is not None
    assert parsed.spec.torch_elastic_policy.num_max_replicas == LARGEST
    assert dict(parsed.spec.charge_of(LARGEST)) == job.quota()


def test_each_change_begins_with_the_workers_of_the_one_before() -> None:
    changes = list(elastic.changes())
    worlds = [2, *(change.world for change in changes)]
    named = [(change.name, worlds[number]) for number, change in enumerate(changes) if "->" in change.name]
    assert [name.partition("->")[0] for name, _ in named] == [str(world) for _, world in named]
    joined = [change.agents for number, change in enumerate(changes) if change.world > worlds[number]]
    assert joined == [after - before for before, after in itertools.pairwise(worlds) if after > before]


@pytest.mark.servers
def test_without_pytorch_the_benchmark_ends_with_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    done = CliRunner().invoke(main, ["elastic", "--json"])
    assert done.exit_code == 1
    assert done.stderr == "Error: elastic: PyTorch is not installed in this environment: pip install torch==2.13.0\n"
    assert done.stdout == ""
