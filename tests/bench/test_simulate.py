"""The simulator: its figures for a fixed scenario, its input files, and the policies that it compares."""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench.benchmarks import simulate
from bench.cli import main
from bench.errors import BenchError
from bench.support import scenarios
from bench.support.arena import GPU, Fifo, Production, WeightedRoundRobin
from bench.support.scenarios import Job, Scenario
from bench.support.simulated import played
from bench.support.simulated.node_policies import POLICIES, gangs
from crds.keys import JobKey
from queues.rules import PickRules
from queues.values import Entry, QueueSpec

YAML = """
pool: {requests.nvidia.com/gpu: 2}
queues:
  - {name: a, weight: 2}
  - {name: b, quota: {nvidia.com/gpu: 1}, ordering: StrictFIFO}
jobs:
  - {queue: a, count: 3, every: 1, requests: {nvidia.com/gpu: 1}, seconds: 10}
  - {queue: b, count: 2, start: 5, requests: {nvidia.com/gpu: 1}, seconds: [1, 2]}
"""
TRACE = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
one,1000,1024,1,1000,,LS,Running,0,100,0
two,1000,1024,1,1000,,BE,Running,0,100,50
never,1000,1024,1,1000,,BE,Pending,0,,
three,1000,1024,8,1000,,BE,Running,10,110,10
"""


def job(queue: str, number: int, at: float, gpus: int, seconds: float) -> Job:
    key = JobKey(queue, f"job-{number}", f"uid-{queue}-{number}")
    return Job(Entry(key=key, queue=queue, submitted=at, demand={"jobs": 1, GPU: gpus}), seconds)


def small() -> Scenario:
    jobs = [job("a", 0, 0, 2, 10), job("b", 0, 0, 1, 10), job("a", 1, 0, 1, 10)]
    return Scenario([QueueSpec(name="a"), QueueSpec(name="b")], {GPU: 2}, jobs)


def test_play_measures_waits_makespan_and_utilisation() -> None:
    scenario = small()
    figures = played.play(Production(scenario.queues, scenario.pool, PickRules()), scenario, GPU).figures()
    assert (figures["admitted"], figures["never_admitted"], figures["makespan_s"]) == (3, 0, 20.0)
    assert figures["utilisation_percent"] == 100.0
    assert {queue: waits["max"] for queue, waits in figures["wait_s"].items()} == {"a": 10.0, "b": 10.0}


def test_fifo_keeps_the_order_and_round_robin_alternates_by_weight() -> None:
    queues = [QueueSpec(name="a", weight=2), QueueSpec(name="b")]
    jobs = [*(job("a", number, number, 1, 99) for number in range(4)), job("b", 0, 9, 1, 99)]
    fifo, rounds = Fifo(queues, {GPU: 3}), WeightedRoundRobin(queues, {GPU: 3})
    for arena, expected in ((fifo, "aaa"), (rounds, "aab")):
        for each in jobs:
            arena.put(each.entry)
        chosen = ""
        while admitted := arena.admit(0, 9):
            chosen += "".join(entry.queue for entry in admitted)
        assert chosen == expected


@pytest.mark.parametrize(("parts", "index"), [([1, 1, 1], 1.0), ([1, 0, 0, 0], 0.25), ([2, 1], 0.9)])
def test_jain_returns_the_fairness_index(parts: list[float], index: float) -> None:
    assert played.jain(parts) == pytest.approx(index)


def test_from_yaml_reads_pool_queues_and_jobs(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(YAML)
    scenario = scenarios.from_yaml(path, 1)
    assert scenario.pool == {GPU: 2}
    assert scenario.queues[1].quota == {GPU: 1}
    assert scenario.queues[1].strict
    assert [each.entry.submitted for each in scenario.jobs] == [0, 1, 2, 5, 5]
    assert all(1 <= each.seconds <= 2 for each in scenario.jobs[3:])
    figures = simulate.run(simulate.Options(scenario=str(path)))
    assert (figures["admitted"], set(figures["against"])) == (5, {"fifo", "weighted_round_robin"})


def test_a_trace_becomes_one_queue_for_each_qos_class(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    scenario = scenarios.trace(path, 0.5)
    assert [(each.entry.key.name, each.entry.queue, each.seconds) for each in scenario.jobs] == [
        ("two", "be", 50.0),
        ("one", "ls", 100.0),
        ("three", "be", 100.0),
    ]
    assert scenario.pool == {"cpu": 1500, "memory": 3 << 29, GPU: 8}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("queues: []\njobs: []", "queues"),
        (YAML.replace("weight: 2", "weight: 0"), "queues.0.weight"),
        (YAML.replace("seconds: 10", "seconds: -1"), "jobs.0.seconds"),
        (YAML.replace("{queue: a,", "{queue: c,"), "there is no queue c"),
        (YAML.replace("gpu: 2}", "gpu: two}"), "'two'"),
        ("[", "scenario.yaml"),
    ],
)
def test_an_invalid_scenario_is_rejected_with_its_field(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(text)
    with pytest.raises(BenchError, match=message):
        scenarios.from_yaml(path, 1)


@pytest.mark.parametrize("text", [None, "name\nx\n", TRACE.replace(",0,100,50", ",zero,100,50")])
def test_an_invalid_trace_is_rejected_with_its_file(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "trace.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BenchError, match=r"trace\.csv"):
        scenarios.trace(path, 0.5)


NODES = """sn,cpu_milli,memory_mib,gpu,model
first,2000,8192,8,A
small,2000,4096,1,B
large,9000,9000,8,B
tight,1000,512,2,C
"""


@pytest.mark.parametrize(("policy", "chosen"), [("torchq", 1), ("first_fit", 0), ("best_fit", 3), ("spreading", 2)])
def test_each_policy_chooses_a_node_of_its_own(tmp_path: Path, policy: str, chosen: int) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text(NODES)
    places = POLICIES[policy](scenarios.nodes(path), gangs())
    demands = [{"cpu": 1000, GPU: 1}, {"cpu": 2000, GPU: 8}]
    small, whole = (places.gang_of("", "", demand) for demand in demands)
    assert small is not None
    assert whole is not None
    places.count_typical([small, whole])
    places.room.use(1, [("memory", 1 << 20)], 1)
    places.room.use(0, [("cpu", 1000)], 1)
    places.take("job", small)
    assert [node for node, _ in places.jobs["job"].waiting] == [chosen]


def test_tasks_are_placed_on_nodes_until_none_has_room_and_under_the_picker(tmp_path: Path) -> None:
    trace, nodes = tmp_path / "trace.csv", tmp_path / "nodes.csv"
    trace.write_text(TRACE)
    nodes.write_text(NODES)
    figures = simulate.run(simulate.Options(trace=str(trace), nodes=str(nodes)))
    assert (figures["nodes"], figures["gpus"]) == (4, 19)
    ways = set(POLICIES)
    assert set(figures["filled"]) == ways
    assert set(figures["played"]) == ways | {"sums"}
    for filled in figures["filled"].values():
        assert 0 <= filled["unallocated_at_130_percent"] <= filled["unallocated_then"] <= 19
    for each in figures["played"].values():
        assert each["never_admitted"] == 0
        assert 0 < each["utilisation_percent"] < 100.1


@pytest.mark.parametrize(
    ("nodes", "beside", "played"),
    [
        ("openb_node_list_gpu_node.csv", ["openb_pod_list_default.csv", "openb_pod_list_cpu050.csv"], 0),
        ("openb_node_list_gpu_node.csv", ["openb_pod_list_cpu050.csv", "other_pod_list_default.csv"], 0),
        ("openb_node_list_gpu_node.csv", ["openb_pod_list_cpu050.csv", "openb_pod_list_cpu100.csv"], None),
        ("openb_node_list_gpu_node.csv", ["other_pod_list_default.csv"], None),
        ("nodes.csv", ["pod_list.csv"], None),
    ],
)
def test_nodes_alone_play_the_list_of_pods_that_belongs_to_them(
    tmp_path: Path, nodes: str, beside: list[str], played: int | None
) -> None:
    (tmp_path / nodes).write_text(NODES)
    for each in beside:
        (tmp_path / each).write_text(TRACE)
    options = simulate.Options(nodes=str(tmp_path / nodes))
    if played is None:
        with pytest.raises(BenchError, match=rf"{nodes}: .*add --trace CSV"):
            simulate.run(options)
    else:
        assert simulate.run(options)["trace"] == str(tmp_path / beside[played])


@pytest.mark.parametrize("text", [None, "sn\nx\n", NODES.replace("9000,8", "9000,x"), "sn,cpu_milli,memory_mib,gpu\n"])
def test_an_invalid_list_of_nodes_is_rejected_with_its_file(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "nodes.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BenchError, match=r"nodes\.csv"):
        scenarios.nodes(path)


@pytest.mark.servers
def test_the_simulate_command_admits_all_jobs() -> None:
    done = CliRunner().invoke(main, ["simulate", "--jobs", "200", "--json"])
    assert done.exit_code == 0, done.output
    result: dict[str, Any] = json.loads(done.stdout)
    assert (result["simulated"], result["admitted"]) == (200, 200)


class Recorded(Production):
    """An arena that records how long jobs have waited, by priority."""

    waits: dict[int, list[float]]

    def choose(self, now: float, limit: int, /) -> Sequence[Entry]:
        chosen = super().choose(now, limit)
        for entry in chosen:
            self.waits.setdefault(entry.priority, []).append(now - entry.submitted)
        return chosen


@pytest.mark.parametrize("heads", [8, 64])
def test_the_highest_priority_waits_the_shortest_however_large_its_jobs_are(
    heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six queues of a cohort, each with small, medium and large jobs, which together request more than the cohort
    has.
    """
    monkeypatch.setattr(Production, "heads", heads)
    queues = [QueueSpec(name=f"q{number}", quota={"cpu": 20}, cohort="all") for number in range(6)]
    shapes = [(50, 1, 140, 0.15), (100, 5, 40, 0.75), (200, 20, 20, 1.8)]
    made = [
        Job(Entry(key=JobKey(queue.name, f"{cpu}-{number}", f"{queue.name}-{cpu}-{number}"), queue=queue.name,
                  submitted=number * every, priority=priority, demand={"jobs": 1, "cpu": cpu}),
            1.0 + (number * 7 % 11) / 3)
        for queue in queues for priority, cpu, count, every in shapes for number in range(count)
    ]  # fmt: skip
    recorded = Recorded(queues, None, PickRules(cost="cpu"))
    recorded.waits = {}
    played.play(recorded, Scenario(queues, None, sorted(made, key=lambda each: each.entry.submitted)), "cpu")
    large, medium, small = (statistics.fmean(recorded.waits[priority]) for priority in (200, 100, 50))
    assert large < medium < small
