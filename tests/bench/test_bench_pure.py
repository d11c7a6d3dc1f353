"""The pure parts of the benchmarks: arguments, the shape of the JSON, what is measured from what was admitted."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench.benchmarks import fairness, picks
from bench.cli import SHORT, main
from bench.errors import BenchError
from bench.report import milliseconds, report, text
from bench.support import redis_program, redis_server
from tests.doubles.memory_store import MemoryStore

MACHINE = {"cpu", "cores", "system", "python", "torchq", "redis_server", "rq", "commit", "load_before", "load_after"}


def run(*arguments: str) -> Any:
    """The JSON that a command prints."""
    done = CliRunner().invoke(main, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_fairness_as_json() -> None:
    result = run("fairness", "--picks", "200", "--seed", "3")
    assert result["benchmark"] == "fairness"
    assert (result["picks"], result["seed"], result["picked"]) == (200, 3, 200)
    assert set(result["shares"]) == set(result["target"]) == {"a", "b", "c", "d"}
    assert set(result["machine"]) >= MACHINE


@pytest.mark.parametrize("batch", [1, 128])
def test_every_prefix_is_within_one_largest_job_of_the_weights(batch: int) -> None:
    figures = fairness.run(fairness.Options(picks=250, batch=batch))
    assert 0 < figures["worst_prefix_deviation"] <= 1
    assert figures["shares"] == pytest.approx(figures["target"], abs=0.02)


def test_shares_hold_where_the_pool_is_scarce() -> None:
    figures = fairness.run(fairness.Options(picks=500, pool=64))
    assert figures["picked"] == 500
    assert figures["shares"] == pytest.approx(figures["target"], abs=0.02)


def test_deviation_is_counted_over_every_prefix() -> None:
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
        ["apiserver", "--objects", "1"],
        ["nothing"],
    ],
)
def test_a_wrong_argument_is_one_message(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert "Error:" in done.stderr
    assert "Traceback" not in done.stderr


def test_every_benchmark_has_a_short_version() -> None:
    assert set(SHORT) == set(main.commands) - {"scale"}  # that one needs programs that `make bench` does not bring


def test_without_a_server_there_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sys.path", [])
    monkeypatch.setattr("sys.meta_path", [each for each in sys.meta_path if "editable" not in str(each).lower()])
    done = CliRunner().invoke(main, ["picks", "--jobs", "1"])
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: picks: there is no Redis server")


def test_a_redis_server_on_path_is_measured_before_the_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "redis-server"
    program.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert redis_program.path() == str(program)
    monkeypatch.setenv(redis_program.VARIABLE, "/elsewhere/valkey-server")
    assert redis_program.path() == "/elsewhere/valkey-server"


def test_without_redis_benchmark_its_rate_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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
def test_the_report_says_which_server_it_was(printed: str, version: str) -> None:
    assert redis_program.version(printed) == version


def test_a_report_holds_what_was_asked_and_what_was_measured() -> None:
    result = report("picks", picks.Options(queues=2), {"picks_per_s": 1234.5}, {"cores": 2})
    assert (result["benchmark"], result["queues"], result["picks_per_s"]) == ("picks", 2, 1234.5)
    assert result["machine"] == {"cores": 2}
    assert "picks_per_s  1,23" in text(result)


def test_times_are_summed_up_in_milliseconds() -> None:
    assert milliseconds([0.001, 0.002, 0.003]) == {"p50": 2.0, "p95": 2.9, "p99": 2.98, "max": 3.0}
    assert milliseconds([0.5]) == {"p50": 500.0, "p95": 500.0, "p99": 500.0, "max": 500.0}
    assert milliseconds([]) == {}


def test_the_rate_that_redis_benchmark_prints() -> None:
    assert redis_server.parse('"test","rps","avg_latency_ms"\n"SET","38095.24","0.6"\n') == 38095.24
    with pytest.raises(BenchError, match="no rate"):
        redis_server.parse("Could not connect")


@pytest.mark.parametrize(("hard", "picked"), [(False, 60), (True, 58)])
def test_one_queue_in_ten_has_a_next_job_that_does_not_fit(hard: bool, picked: int) -> None:
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
