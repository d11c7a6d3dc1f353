"""The Kueue baseline benchmark and the open loop: scenario, ledger, API request counts, arrivals and arguments."""

import itertools
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner

from bench.benchmarks import kueue_baseline, latency
from bench.benchmarks.kueue_baseline import Seen
from bench.cli import main
from bench.support import api_counts, open_loop
from bench.support.baseline import held_time, scenario
from bench.support.baseline.held_time import Moments
from bench.support.baseline.scenario import Scenario
from bench.support.later import Later
from bench.support.ledger import JobLedger
from bench.support.open_loop import Planned, Sent
from bench.support.pod_player import RUN_LABEL
from crds import tenantqueue
from crds.torchjob import demand, torchjob
from reconcilers.plan import status
from tests.support.waiting import SECONDS

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
REAL = """
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="torchjobs",subresource="status",verb="PATCH"} 7
apiserver_request_total{code="409",resource="torchjobs",subresource="status",verb="PATCH"} 2
apiserver_request_total{code="201",group="",resource="pods",subresource="",verb="POST"} 1e+03
apiserver_request_total{code="0",group="",resource="pods",subresource="",verb="WATCH"} 4
"""
EMBEDDED = """
apiserver_request_total{client="bench",verb="CREATE",resource="torchjobs.train.distributed.io",subresource=""} 3
apiserver_request_total{client="torchq-worker",verb="CREATE",resource="torchjobs.train.distributed.io",subresource=""} 4
"""


class TestScenario:
    whole = Scenario("bench-1")

    def test_the_scenario_has_the_size_of_kueues(self) -> None:
        jobs = self.whole.jobs()
        assert len(jobs) == 15_000
        assert Counter(each.kind.name for each in jobs.values()) == {"small": 10_500, "medium": 3_000, "large": 1_500}
        assert len({each.queue for each in jobs.values()}) == 30
        assert len({each.cohort for each in jobs.values()}) == 5
        assert self.whole.work / self.whole.quota == pytest.approx(66)

    def test_the_arrivals_of_the_scenario_take_a_minute(self) -> None:
        plan = list(self.whole.plan())
        assert len({each.job["metadata"]["name"] for each in plan}) == len(plan) == 15_000
        assert max(each.due for each in plan) == pytest.approx(58.8)
        assert sum(each.due < 1 for each in plan) == 30 * (10 + 2 + 1)

    def test_a_small_part_of_the_scenario_has_every_job_class(self) -> None:
        small = Scenario("bench-1", 0.001)
        assert {each.kind.name for each in small.jobs().values()} == {"small", "medium", "large"}

    def test_the_objects_of_the_scenario_are_valid(self) -> None:
        found = [each.job for each in Scenario("bench-4194304", 0.001).plan()]
        for manifest in found:
            job = torchjob.parse(manifest)
            kind = next(each for each in scenario.CLASSES if each.name == manifest["metadata"]["labels"]["bench/class"])
            assert demand.job_charge(job.spec) == {"jobs": 1, "pods": 1, "cpu": kind.cpu * 1000}
            assert job.spec.scheduling_policy.priority == kind.priority
        for queue in Scenario("bench-4194304").queues():
            assert tenantqueue.parse(queue).spec.cohort


class TestLedger:
    def ledger(self) -> JobLedger:
        return JobLedger(Scenario("p", 0.01).jobs(), limit=20)

    def test_record_keeps_the_first_times_of_admission_and_end(self) -> None:
        ledger = self.ledger()
        name = "c0-q0-small-0"
        steps = [("", "", 1.0), ("", "Queued", 2.0), ("Queued", "Admitted", 3.0), ("Admitted", "Running", 4.0)]
        assert [ledger.record(name, *step) for step in steps] == [False, False, True, False]
        ledger.record(name, "Running", "Succeeded", 5.0)
        assert (ledger.admitted, ledger.ended) == ({name: 3.0}, {name: 5.0})
        assert (ledger.sent_back, ledger.over, ledger.failed) == (0, 0, "")
        assert ledger.text() == "Succeeded=1"

    def test_record_counts_an_admission_that_was_withdrawn(self) -> None:
        ledger = self.ledger()
        name = "c0-q0-small-0"
        assert ledger.record(name, "", "Admitted", 1.0)
        assert not ledger.record(name, "Admitted", "Queued", 2.0)
        assert ledger.record(name, "Queued", "Admitted", 3.0)
        assert (ledger.sent_back, ledger.admitted[name]) == (1, 1.0)

    def test_record_measures_usage_of_a_cohort_over_its_quota(self) -> None:
        ledger = self.ledger()
        ledger.record("c0-q0-large-0", "", "Admitted", 1.0)
        ledger.record("c1-q0-large-0", "", "Admitted", 1.0)
        assert ledger.over == 0
        ledger.record("c0-q1-medium-0", "", "Admitted", 2.0)
        ledger.record("c0-q0-large-0", "Admitted", "Succeeded", 3.0)
        assert ledger.over == 5

    def test_a_job_first_seen_at_its_end_counts_as_no_usage(self) -> None:
        ledger = self.ledger()
        ledger.record("c0-q0-large-0", "", "Succeeded", 1.0)
        ledger.record("c0-q1-large-0", "", "Admitted", 2.0)
        assert ledger.over == 0
        assert ledger.admitted["c0-q0-large-0"] == 1.0


class TestCounts:
    def test_by_code_reads_the_metrics_of_kube_apiserver(self) -> None:
        found = api_counts.by_code(REAL)
        assert found == {
            "PATCH torchjobs/status 200": 7,
            "PATCH torchjobs/status 409": 2,
            "POST pods 201": 1000,
            "WATCH pods 0": 4,
        }
        assert api_counts.by_verb(found)["PATCH torchjobs/status"] == 9
        assert api_counts.writes(found) == 1009
        assert api_counts.failures(found) == {"PATCH torchjobs/status 409": 2}
        assert api_counts.per_job(found, 500) == {"POST pods": 2.0, "PATCH torchjobs/status": 0.018}

    def test_by_code_reads_the_metrics_of_the_embedded_server(self) -> None:
        found = api_counts.by_code(EMBEDDED)
        assert api_counts.by_verb(found) == {"POST torchjobs": 7}
        assert api_counts.failures(found) == {}


class TestHeldTime:
    worker = """
2026-01-02 03:04:05,000 DEBUG reconcilers: ns/a/u-1: picked 10.0000, leased 11.0000, begun 11.5000, admitted 12.0000
2026-01-02 03:04:05,000 DEBUG reconcilers: ns/b/u-2: picked 10.0000, leased 10.0000, begun 10.0000, admitted 10.5000
2026-01-02 03:04:05,000 INFO reconcilers: ns/b/u-2: Admitted
"""
    leader = """
2026-01-02 03:04:05,000 DEBUG coordinator: ns/a/u-1: end seen 14.5000, settled 14.5000, charge freed 16.0000
2026-01-02 03:04:05,000 DEBUG coordinator: ns/b/u-2: end seen 11.0000, settled 11.5000, charge freed 12.0000
2026-01-02 03:04:05,000 DEBUG coordinator: ns/c/u-3: end seen 11.0000, settled 11.5000, charge freed 12.0000
"""

    def test_moments_joins_the_logs_and_moves_no_moment_before_another(self) -> None:
        found = held_time.moments(self.worker, self.leader, {"a": 14.0, "b": 11.2, "c": 1.0})
        assert found == {
            "a": Moments(10.0, 11.0, 11.5, 12.0, 14.0, 14.5, 14.5, 16.0),
            "b": Moments(10.0, 10.0, 10.0, 10.5, 11.2, 11.2, 11.5, 12.0),
        }

    def test_the_stages_are_all_of_the_time_for_which_quota_was_held(self) -> None:
        jobs = held_time.moments(self.worker, self.leader, {"a": 14.0, "b": 11.2})
        found = held_time.figures(jobs, {"a": 1, "b": 20}, charged=50.0)
        assert sum(found["held_percent"].values()) == pytest.approx(100, abs=0.1)
        assert found["held_percent"]["run"] == pytest.approx(100 * (2 + 20 * 0.7) / 46, abs=0.1)
        assert found["held_of_charged_percent"] == 92.0
        assert found["held_time"]["handover"] == {"percent": 1.09, "p50_ms": 250.0, "p99_ms": 495.0}

    def test_figures_of_no_job_are_empty(self) -> None:
        assert held_time.figures({}, {}, 0.0) == {
            "held_jobs": 0,
            "held_percent": {},
            "held_of_charged_percent": None,
            "held_time": {},
        }


def test_success_patch_equals_the_patch_of_a_worker() -> None:
    manifest = next(Scenario("p", 0.001).plan()).job
    metadata = {**manifest["metadata"], "namespace": "p", "uid": "u", "resourceVersion": "7", "generation": 1}
    since = {"lastTransitionTime": "2026-01-02T03:00:00Z", "reason": "Admitted", "observedGeneration": 1}
    before = {"phase": "Admitted", "conditions": [{"type": "Admitted", "status": "True", **since}], "attempt": 1}
    job = torchjob.parse({**manifest, "metadata": metadata, "status": before})
    found = kueue_baseline.success_patch(Seen("p", "Admitted", "7", 1, before), NOW)
    worker = status.patch_from(job.status, status.finish(job, "Succeeded", "Succeeded", "its run time is over", NOW))
    assert {**found, "tenantQueue": job.queue} == worker


def test_later_runs_actions_in_order_and_records_lateness() -> None:
    done: list[str] = []
    over = threading.Event()
    with Later(threads=1) as later:
        now = time.monotonic()
        later.at(now + 0.06, lambda: (done.append("third"), over.set()))
        later.at(now + 0.03, lambda: done.append("second"))
        later.at(now - 1.0, lambda: done.append("first"))
        assert over.wait(SECONDS)
    assert done == ["first", "second", "third"]
    assert later.late[0] >= 1.0


class TestArrivals:
    def due(self, **options: Any) -> list[float]:
        return [each.due for each in latency.plan("p", latency.Options(**options))]

    def test_even_arrivals_come_at_the_rate(self) -> None:
        assert self.due(arrivals="even", rate=4, seconds=1) == [0.0, 0.25, 0.5, 0.75]

    def test_poisson_arrivals_come_at_the_rate_on_average(self) -> None:
        found = self.due(rate=20, seconds=500)
        assert len(found) == pytest.approx(10_000, rel=0.05)
        assert found == sorted(found)
        gaps = [after - before for before, after in itertools.pairwise(found)]
        assert sum(gap > 1 / 20 for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.03)

    def test_the_same_seed_gives_the_same_jobs(self) -> None:
        once, again = (list(latency.plan("p", latency.Options(seconds=3))) for _ in range(2))
        assert once == again
        assert once != list(latency.plan("p", latency.Options(seconds=3, seed=2)))

    def test_a_job_has_the_run_time_of_its_pod_as_a_label(self) -> None:
        found = torchjob.parse(latency.job(3, "p-1", 250))
        template = found.spec.torch_task_specs["Master"].template
        assert template["metadata"]["labels"] == {RUN_LABEL: "250"}


class TestOpenLoop:
    def test_create_all_sends_the_next_job_before_the_last_answer(self) -> None:
        stuck, sent = threading.Event(), []

        def create(_: str, job: Any) -> None:
            sent.append(job["metadata"]["name"])
            if len(sent) == 1:
                assert stuck.wait(SECONDS)
            elif len(sent) == 3:
                stuck.set()

        planned = [(0.01 * number, "ns", {"metadata": {"name": str(number)}}) for number in range(3)]
        rows = open_loop.create_all(create, planned, time.monotonic(), threads=2)
        assert sent == ["0", "1", "2"]
        assert {name for name, *_ in rows} == {"0", "1", "2"}
        assert all(due <= begun <= answered for _, due, begun, answered in rows)

    def test_create_all_raises_the_error_of_a_refused_job(self) -> None:
        def create(_: str, job: Any) -> None:
            raise ValueError("refused")

        with pytest.raises(ValueError, match="refused"):
            open_loop.create_all(create, [(0.0, "ns", {"metadata": {"name": "a"}})], time.monotonic(), threads=1)

    def test_lateness_summarizes_late_and_slow_submissions(self) -> None:
        found = open_loop.lateness([Sent(1.0, 1.5, 1.6), Sent(2.0, 2.0, 2.1)])
        assert found["submit_late_ms"]["max"] == 500.0
        assert found["submit_took_ms"]["p50"] == pytest.approx(100.0)

    def test_lines_sorts_a_plan_by_time(self) -> None:
        planned = [Planned(2.0, {"a": 1}), Planned(1.0, {"b": 2})]
        assert open_loop.lines(planned, "ns") == b'[1.0,"ns",{"b":2}]\n[2.0,"ns",{"a":1}]'


@pytest.mark.parametrize(
    "arguments",
    [
        ["kueue-baseline", "--jobs-factor", "0"],
        ["kueue-baseline", "--pods", "two"],
        ["kueue-baseline", "--kubeconfig", "/nowhere"],
        ["latency", "--rate", "0"],
        ["latency", "--real", "--kubeconfig", __file__],
    ],
)
def test_an_invalid_argument_ends_with_one_message(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert "Error:" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.redis_server
@pytest.mark.stack
def test_a_short_kueue_baseline_stays_within_its_quota() -> None:
    options = kueue_baseline.Options(jobs_factor=0.001, clients=1, workers=1, seconds=120)
    figures = kueue_baseline.run(options)
    assert (figures["jobs"], figures["over_quota_cpu"], figures["sent_back"]) == (90, 0, 0)
    assert set(figures["wait_s"]) == {"small", "medium", "large"}
    assert figures["wall_s"] > 1  # a large job runs for a second
    assert 0 < figures["api_writes_per_job"] < 4
    assert {"coordinator", "worker-0"} <= figures["cpu_s"].keys()
    assert figures["held_jobs"] == 90
    assert sum(figures["held_percent"].values()) == pytest.approx(100, abs=1)
