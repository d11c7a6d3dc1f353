"""The parts of the benchmarks without servers: arguments, JSON reports, and figures computed from admissions."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench.benchmarks import fairness, picks, topology
from bench.cli import BENCHMARKS, main
from bench.errors import BenchError
from bench.report import milliseconds, report, text
from bench.support import redis_server
from queues.placement.places import Places
from tests.doubles.memory_store import MemoryStore

MACHINE = {"cpu", "cores", "system", "python", "torchq", "redis_server", "rq", "commit", "load_before", "load_after"}


def run(*arguments: str) -> Any:
    """Run a benchmark command and return the JSON that it prints."""
    done = CliRunner().invoke(main, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.servers
def test_fairness_json_has_shares_targets_and_the_machine() -> None:
    result = run("fairness", "--picks", "200", "--seed", "3")
    assert result["benchmark"] == "fairness"
    assert (result["picks"], result["seed"], result["picked"]) == (200, 3, 200)
    assert set(result["shares"]) == set(result["target"]) == {"a", "b", "c", "d"}
    assert set(result["machine"]) >= MACHINE


def test_no_gang_needs_more_racks_than_with_the_documented_algorithm_of_kueue() -> None:
    figures = topology.run(topology.Options(clusters=300))
    assert figures["required"]["only_tas"] == 0
    assert figures["required"]["both"] > 100
    assert (figures["preferred"]["torchq_more"], figures["preferred"]["only_tas"]) == (0, 0)
    assert figures["preferred"]["torchq_fewer"] > 30


@pytest.mark.parametrize("batch", [1, 128])
def test_every_prefix_of_picks_deviates_by_at_most_one_largest_job(batch: int) -> None:
    figures = fairness.run(fairness.Options(picks=250, batch=batch))
    assert 0 < figures["worst_prefix_deviation"] <= 1
    assert figures["shares"] == pytest.approx(figures["target"], abs=0.02)


def test_shares_match_the_weights_in_a_small_pool() -> None:
    figures = fairness.run(fairness.Options(picks=500, pool=64))
    assert figures["picked"] == 500
    assert figures["shares"] == pytest.approx(figures["target"], abs=0.02)


def test_share_measures_the_worst_deviation_over_all_prefixes() -> None:
    figures = fairness.share([("a", 4), ("a", 4), ("b", 8)], {"a": 1, "b": 1})
    assert figures["worst_prefix_deviation"] == 4 / 8
    assert figures["shares"] == {"a": 0.5, "b": 0.5}


@pytest.mark.parametrize(
    "arguments",
    [
        ["picks", "--queues", "0"],
        ["picks", "--batch", "0"],
        ["reconcile", "--keys", "none"],
        ["fairness", "--pool", "4"],
        ["nothing"],
    ],
)
def test_an_invalid_argument_ends_with_one_message(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert "Error:" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("different", [False, True])
def test_picks_on_nodes_take_a_place_for_each_job_and_on_sums_for_none(different: bool) -> None:
    options = picks.Options(queues=4, jobs=60, nodes=7, different=different)
    for places in (Places(picks.nodes(options), picks.nodes(options), picks.gang_of), None):
        store = MemoryStore(lambda *_: None)
        store.rebuild(1, [], [])
        store.configure(list(picks.specs(options)), picks.capacity(picks.nodes(options)))
        store.put(picks.entries(options))
        assert picks.pick(store, options, places)["picked"] == 60
        assert places is None or sum(sum(job.waiting.values()) for job in places.jobs.values()) == 60


def test_different_nodes_have_different_amounts_and_room_for_all_jobs() -> None:
    options = picks.Options(jobs=5_000, nodes=100, different=True)
    room = picks.nodes(options)
    assert len({tuple(room.free(node).items()) for node in range(100)}) == 100
    assert picks.capacity(room)[picks.GPU] >= 5_000


def test_every_benchmark_has_a_short_version() -> None:
    needs_more = {"elastic"}  # the benchmark needs PyTorch, which `make bench` does not install
    short = {each.name for each in BENCHMARKS if hasattr(each.module, "SHORT")}
    assert short == set(main.commands) - needs_more


@pytest.mark.servers
def test_a_missing_redis_server_ends_with_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sys.path", [])
    monkeypatch.setattr("sys.meta_path", [each for each in sys.meta_path if "editable" not in str(each).lower()])
    done = CliRunner().invoke(main, ["picks", "--jobs", "1"])
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: picks: there is no Redis server")


def test_path_prefers_the_variable_then_the_redis_server_on_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "redis-server"
    program.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert redis_server.program() == str(program)
    monkeypatch.setenv(redis_server.VARIABLE, "/elsewhere/valkey-server")
    assert redis_server.program() == "/elsewhere/valkey-server"


def test_operations_per_second_is_empty_without_redis_benchmark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "")
    assert redis_server.operations_per_second(tmp_path) == {}


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64", "redis 7.0.15"),
        ("Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64", "valkey 9.1.2"),
        ("", ""),
    ],
)
def test_version_names_the_redis_server_and_its_version(printed: str, version: str) -> None:
    assert redis_server.version(printed) == version


def test_a_report_has_options_figures_and_machine() -> None:
    result = report("picks", picks.Options(queues=2), {"picks_per_s": 1234.5}, {"cores": 2})
    assert (result["benchmark"], result["queues"], result["picks_per_s"]) == ("picks", 2, 1234.5)
    assert result["machine"] == {"cores": 2}
    assert "picks_per_s  1,23" in text(result)


def test_figures_with_equal_parts_are_a_table() -> None:
    figures = {"held": {"dispatch": {"percent": 12.5, "p50_ms": 3}, "run": {"percent": 87.5, "p50_ms": 200}}}
    lines = text(report("picks", picks.Options(queues=2), figures, {"cores": 2})).splitlines()
    [head] = [at for at, line in enumerate(lines) if line.split()[0] == "held"]
    assert [line.split() for line in lines[head : head + 3]] == [
        ["held", "percent", "p50_ms"],
        ["dispatch", "12.5", "3"],
        ["run", "87.5", "200"],
    ]


def test_milliseconds_returns_the_percentiles_of_times() -> None:
    assert milliseconds([0.001, 0.002, 0.003]) == {"p50": 2.0, "p95": 2.9, "p99": 2.98, "max": 3.0}
    assert milliseconds([0.5]) == {"p50": 500.0, "p95": 500.0, "p99": 500.0, "max": 500.0}
    assert milliseconds([]) == {}


def test_parse_returns_the_rate_of_redis_benchmark_or_fails() -> None:
    assert redis_server.parse('"test","rps","avg_latency_ms"\n"SET","38095.24","0.6"\n') == 38095.24
    with pytest.raises(BenchError, match="no rate"):
        redis_server.parse("Could not connect")


@pytest.mark.parametrize(("hard", "picked"), [(False, 60), (True, 58)])
def test_hard_picks_block_the_first_job_of_one_queue_in_ten(hard: bool, picked: int) -> None:
    options = picks.Options(queues=20, jobs=60, hard=hard, seconds=0.5)
    store = MemoryStore(lambda _key, _tenant: None)
    store.rebuild(1, picks.reservations(options), picks.entries(options))
    store.configure(list(picks.specs(options)), None)
    figures = picks.pick(store, options)
    beside = figures["put_and_released_beside"]
    assert figures["picked"] - beside == picked if not hard else figures["picked"] >= picked
    assert (beside > 0) == hard
    blocked = [view for view in store.snapshot(1).queues if view.waiting and view.heads[0].entry.key.name < "late"]
    assert len(blocked) == (2 if hard else 0)
